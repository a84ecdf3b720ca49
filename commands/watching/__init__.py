"""What a stack's jobs do now: their pods, states and logs, read from its cluster and shown."""
