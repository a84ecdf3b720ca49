"""Validation of a job. Each message states the problem, the allowed values and the remedy."""
