"""Benchmarks that check speed claims. Most benchmarks time two sides alternately, and compare the ratio with a goal."""
