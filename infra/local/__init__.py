"""The Kubernetes cluster on this machine: nodes as namespaces, a control plane, and Pulumi resources for both."""
