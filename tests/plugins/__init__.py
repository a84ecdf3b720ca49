"""Tests of the plugin stand-ins, with the real Pulumi CLI against a real Kubernetes API server."""
