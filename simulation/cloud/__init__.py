"""Simulated clouds: their state, their documented rules, and the providers that the Pulumi engine calls."""
