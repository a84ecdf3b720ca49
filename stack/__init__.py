"""Stack: its settings, their validation, the pools of its jobs, and the run records of its jobs."""
