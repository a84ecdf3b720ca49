"""Images of jobs: their sources, builds and references."""
