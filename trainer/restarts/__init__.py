"""Restarts of a job's ranks in place, in the pods that they are in."""
