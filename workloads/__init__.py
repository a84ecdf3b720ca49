"""Jobs: their settings, their validation and their Kubernetes resources.

This file has no imports, so that the modules without Pulumi can be imported without loading it.
"""
