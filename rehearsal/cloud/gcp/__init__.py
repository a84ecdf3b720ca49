"""Google Cloud, simulated: its kinds of resources and their documented rules."""
