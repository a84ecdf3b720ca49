"""Scripts that jobs start as they are, each a training program of its own."""
