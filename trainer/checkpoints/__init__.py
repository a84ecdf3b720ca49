"""Checkpoints: saving a run's state and resuming from it."""
