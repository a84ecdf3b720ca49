"""Stand-ins for the Python language host and the launcher of dynamic resources, which the CLI's Go module lacks."""
