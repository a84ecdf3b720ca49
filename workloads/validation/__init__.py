"""Validation of a job's settings. Each message states the problem, what is allowed, and the remedy."""
