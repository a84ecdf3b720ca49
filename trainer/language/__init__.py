"""Language models: sizes, tokenizers, decoder, sharding over ranks, Hugging Face's format, and the training task."""
