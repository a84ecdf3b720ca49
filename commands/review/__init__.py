"""Review of a change to a stack: the program's resources before and after, the plan, and the report."""
