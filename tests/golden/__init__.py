"""Golden manifests: the exact Kubernetes objects of each example."""
