"""Tests of Pulumi's plugins as set-up installs them, with the Pulumi CLI against a real Kubernetes API server."""
