"""A decoder block stores about as many numbers for its backward pass as the check of a stack's memory assumes."""

from __future__ import annotations

import torch

from trainer.language.decoder import Block, rotation_of
from trainer.language.sizes import Sizes
from workloads.language_model import LanguageTraining, Model, block_numbers

SIZES = Sizes(layers=1, width=64, heads=4, kv_heads=2, hidden=192)
SAMPLES, TOKENS = 2, 16


def stored_numbers(block: Block) -> int:
    """Return how many numbers a forward pass stores for the backward pass, without the weights."""
    weights = {weight.untyped_storage().data_ptr() for weight in block.parameters()}
    stored: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage().data_ptr()
        if storage not in weights:
            stored[storage] = tensor
        return tensor

    rotation = rotation_of(TOKENS, SIZES.head_width, 10_000, torch.device("cpu"))
    hidden = torch.randn(SAMPLES, TOKENS, SIZES.width, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        block(hidden, rotation, None)
    return sum(tensor.untyped_storage().nbytes() // 4 for tensor in stored.values())


def test_block_stores_the_estimated_numbers_or_up_to_half_more() -> None:
    model = Model(layers=1, width=64, heads=4, kv_heads=2, hidden=192, vocabulary=320, is_tied=True)
    training = LanguageTraining(
        model=model,
        context=TOKENS,
        batch_size=SAMPLES,
        accumulate=1,
        number_bytes=4,
        optimizer="adamw",
        is_compiled=False,
        checkpointing="none",
        is_adapted=False,
        data=1,
        shard=1,
        tensor=1,
    )
    estimated = block_numbers(training) * SAMPLES * TOKENS
    stored = stored_numbers(Block(SIZES, checkpointing="none"))
    assert estimated <= stored <= 1.5 * estimated, (estimated, stored)
