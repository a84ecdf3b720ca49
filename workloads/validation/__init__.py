"""Validation of a job. Each message states the problem, what is allowed, and the remedy."""
