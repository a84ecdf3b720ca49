"""What runs: one typed job description and its renderers. Nothing is imported here, so that pure modules stay pure."""
