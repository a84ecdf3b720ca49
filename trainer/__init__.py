"""Trains models: what runs inside the pods. Knows no Kubernetes, no Pulumi and nothing else of this project."""
