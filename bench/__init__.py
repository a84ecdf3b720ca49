"""Benchmarks that check speed claims. Most time two sides alternately, and compare their ratio with a goal."""
