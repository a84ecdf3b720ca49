"""Documentation, and the generators of its reference pages."""
