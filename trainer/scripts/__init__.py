"""Standalone training programs that jobs start directly."""
