"""Script of examples: train a small Llama on the bytes of texts with Hugging Face's Trainer, under torchrun.

Accepts all options of TrainingArguments, such as `--deepspeed`. Resumes from the newest checkpoint in `--output_dir`.
"""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

CONTEXT = 128
"""Tokens of a sample."""
TEXTS = Path("sotu/train")
"""Folder of texts in the image (State of the Union addresses), relative to its working directory."""


class ByteSamples(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Texts of a folder, cut into samples. Each byte is a token."""

    def __init__(self, folder: Path) -> None:
        text = b"\n".join(file.read_bytes() for file in sorted(folder.glob("*.txt")))
        whole = len(text) // CONTEXT * CONTEXT
        self._samples = torch.frombuffer(bytearray(text[:whole]), dtype=torch.uint8).view(-1, CONTEXT)

    def __len__(self) -> int:
        return len(self._samples)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        tokens = self._samples[index].long()
        return {"input_ids": tokens, "labels": tokens}


def main() -> None:
    """Train and save the model."""
    (arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    config = LlamaConfig(
        vocab_size=256, hidden_size=128, intermediate_size=352, num_hidden_layers=4, num_attention_heads=4
    )
    trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=ByteSamples(TEXTS))
    # Trainer writes this file last. A checkpoint without the file is incomplete.
    complete = [path.parent for path in Path(arguments.output_dir).glob("checkpoint-*/trainer_state.json")]
    newest = max(complete, key=lambda path: int(path.name.partition("-")[2]), default=None)
    if newest:
        print(f"resume from {newest}", flush=True)
    trainer.train(resume_from_checkpoint=str(newest) if newest else None)
    trainer.save_model()


if __name__ == "__main__":
    main()
