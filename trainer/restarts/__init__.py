"""Restart a job's ranks in their running pods."""
