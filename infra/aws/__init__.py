"""What Trainyard provisions on AWS, and the plain settings and rules that say what."""
