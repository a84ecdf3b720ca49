"""Simulated Google Cloud: its kinds of resources and their documented rules."""
