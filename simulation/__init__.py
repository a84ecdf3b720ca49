"""Simulated clouds, and simulated clusters with real Kubernetes control planes and kwok nodes."""

from setup import install

install()
