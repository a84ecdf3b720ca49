"""Restarts of a job's ranks inside their running pods."""
