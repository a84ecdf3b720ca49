"""Simulated AWS: its kinds of resources and their documented rules."""
