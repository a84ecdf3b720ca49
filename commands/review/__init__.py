"""Review of a stack's change: plans, recordings of the program, and their report."""
