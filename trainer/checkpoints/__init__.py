"""Checkpoints: save a run's state, and resume from it."""
