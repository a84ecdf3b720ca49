"""Rehearsals: a stack's whole life against simulated clouds, with a real Kubernetes control plane and played nodes."""

from setup.interrupted import install

install()
