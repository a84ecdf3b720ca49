"""Documentation, and what generates the parts of it that code decides."""
