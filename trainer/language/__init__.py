"""Language models: sizes, tokenizers, decoder, sharding over ranks, Hugging Face's format, and the task of a run."""
