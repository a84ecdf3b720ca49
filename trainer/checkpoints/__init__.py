"""What a run saves, and goes on from."""
