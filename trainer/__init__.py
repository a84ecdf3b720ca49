"""Train models: the code that runs inside the pods. It does not import any other package of this project."""
