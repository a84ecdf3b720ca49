"""Jobs: their settings, their validation and their Kubernetes resources.

This file imports nothing, so that importing one module does not load the others, or Pulumi.
"""
