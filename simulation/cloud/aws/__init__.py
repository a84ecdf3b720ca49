"""Simulated AWS: its kinds of resources and their documented rules."""

ACCOUNT = "123456789012"
"""The simulated AWS account."""
