"""Waiting until an object is ready or gone: a rule for each kind, and the annotations that change it."""
