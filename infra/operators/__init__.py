"""The operators of jobs: which there are, what they are made of, and the room that they take."""
