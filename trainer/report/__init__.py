"""What a run says of itself: numbers, times, curves and images."""
