"""Benchmarks of speed claims as ratios. Each run measures both sides alternately."""
