"""Speed claims as ratios: both sides are measured in one run, in turn."""
