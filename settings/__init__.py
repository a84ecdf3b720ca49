"""Parsing and validation of settings."""
