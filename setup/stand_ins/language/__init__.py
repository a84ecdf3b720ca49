"""The stand-in of Pulumi's Python language host."""
