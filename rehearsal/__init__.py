"""Rehearsals: the life cycle of a stack on simulated clouds, real Kubernetes control planes and kwok nodes."""

from setup.interrupted import install

install()
