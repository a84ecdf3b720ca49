"""What a stack has in its cloud, by the cloud's own listing."""
