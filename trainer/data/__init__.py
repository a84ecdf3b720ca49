"""Data sets for training and evaluation."""
