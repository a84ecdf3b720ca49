"""Kubernetes cluster on this machine: nodes as namespaces, a control plane, and their Pulumi resources."""
