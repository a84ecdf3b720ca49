"""Simulated clouds, and simulated clusters with real Kubernetes control planes and kwok nodes."""

from setup import install

# Ctrl-C ends these programs with one line instead of a traceback.
install()
