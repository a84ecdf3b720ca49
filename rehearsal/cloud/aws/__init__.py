"""AWS, simulated: its kinds of resources and their documented rules."""
