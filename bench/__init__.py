"""Benchmarks of speed claims. Most are the ratio of two sides, which a run measures alternately."""
