"""Output of a run: metrics, times, curves and images."""
