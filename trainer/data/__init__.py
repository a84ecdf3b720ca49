"""What training and evaluation take their samples from."""
