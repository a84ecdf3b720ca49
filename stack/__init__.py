"""A stack: its settings, their validation, the placement of its jobs on pools, and their run records."""
