"""Stand-in for Pulumi's Python language host."""
