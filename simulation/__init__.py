"""Simulated clouds, and clusters of a real Kubernetes control plane and simulated nodes."""

from setup import install

# Ctrl-C ends these programs with one line instead of a traceback.
install()
