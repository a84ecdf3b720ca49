"""Monitor of a stack's jobs: their states, pods and logs."""
