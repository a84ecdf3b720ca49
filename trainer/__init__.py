"""Trainer: the program that trains models in the pods. It does not import any other package of this project."""
