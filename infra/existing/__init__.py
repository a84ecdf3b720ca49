"""An existing cluster as a platform."""
