"""Language models: sizes, decoder, texts, and the groups of ranks that share a model."""
