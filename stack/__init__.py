"""Settings of a stack, their validation, the placement of jobs on pools, and the jobs' run records."""
