"""Golden manifests: what each example becomes in Kubernetes, compared exactly."""
