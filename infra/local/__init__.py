"""The Kubernetes cluster on this machine: nodes as namespaces, a control plane, and their life as a Pulumi resource."""
