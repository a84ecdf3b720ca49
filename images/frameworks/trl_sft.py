"""Script of an example: train a small Llama to add numbers with TRL's SFTTrainer, under torchrun.

Accepts all options of SFTConfig. Resumes from the newest checkpoint in `--output_dir`.
"""

from __future__ import annotations

import random
from pathlib import Path

from datasets import Dataset
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import SFTConfig, SFTTrainer, TrlParser

SAMPLES = 10_000


def byte_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with a token for each byte and a token that ends a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*alphabet, "<end>"])}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>")


def sums() -> Dataset:
    """Return prompts such as "1 + 2 =" with their results as completions. SFTTrainer trains only on completions."""
    numbers = random.Random(0)
    pairs = [(numbers.randrange(100), numbers.randrange(100)) for _ in range(SAMPLES)]
    return Dataset.from_list([{"prompt": f"{a} + {b} =", "completion": f" {a + b}"} for a, b in pairs])


def main() -> None:
    """Train and save the model."""
    (arguments,) = TrlParser(SFTConfig).parse_args_and_config()
    tokenizer = byte_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=4,
        num_attention_heads=4,
    )
    trainer = SFTTrainer(LlamaForCausalLM(config), arguments, train_dataset=sums(), processing_class=tokenizer)
    # SFTTrainer writes this file last. A checkpoint without the file is incomplete.
    complete = [path.parent for path in Path(arguments.output_dir).glob("checkpoint-*/trainer_state.json")]
    newest = max(complete, key=lambda path: int(path.name.partition("-")[2]), default=None)
    if newest:
        print(f"resume from {newest}", flush=True)
    trainer.train(resume_from_checkpoint=str(newest) if newest else None)
    trainer.save_model()


if __name__ == "__main__":
    main()
