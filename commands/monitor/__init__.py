"""Monitor of a stack's jobs: their pods, states and logs, read from its cluster and shown."""
