"""AWS resources that Trainyard provisions, with their settings and validation rules."""
