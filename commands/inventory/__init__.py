"""Inventory of a stack's resources in its cloud, from the cloud's own listing."""
