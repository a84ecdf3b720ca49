"""What a change of a stack would do, cost and need: plans, recordings of the program, and the report of both."""
