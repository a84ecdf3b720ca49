"""Speed claims as ratios: both sides measured in one run, one after the other in turn."""
