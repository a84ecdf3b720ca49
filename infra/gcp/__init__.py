"""What Trainyard provisions on Google Cloud, and the plain settings and rules that say what."""
