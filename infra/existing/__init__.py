"""Platform on an existing cluster, which the stack neither creates nor deletes."""
