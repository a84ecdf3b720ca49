"""What nodes have room for: the offers of a platform's pools, and which of them a job fits on."""
