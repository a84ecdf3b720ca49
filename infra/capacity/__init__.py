"""Capacity planning: the nodes of a platform's pools, and the pools that a job fits in."""
