"""The simulated AWS account."""

ACCOUNT = "123456789012"
