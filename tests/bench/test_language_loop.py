"""Batches and falling loss of the plain training loop that the benchmark compares with the language recipe."""

from __future__ import annotations

import torch
from torch.nn import functional

from bench.reference_loops import LanguageSettings, language_epoch, token_batches
from trainer.language.decoder import Decoder, initialize
from trainer.language.sizes import Sizes

SETTINGS = LanguageSettings(batch_size=4, context=16, learning_rate=1e-2, warmup_steps=2, all_steps=200)
TOKENS = (torch.arange(16 * 40 + 1) % 7).to(torch.int16)
"""Tokens that repeat the numbers 0 to 6. A model can predict each token from its predecessor."""


def test_token_batches_have_each_token_once_with_its_successor_as_label() -> None:
    found = list(token_batches(TOKENS, SETTINGS))
    assert sum(inputs.numel() for inputs, _ in found) == len(TOKENS) - 1
    assert all(torch.equal((inputs + 1) % 7, labels) for inputs, labels in found)


def test_plain_loop_lowers_the_loss() -> None:
    torch.manual_seed(0)
    model = Decoder(Sizes(layers=1, width=16, heads=2, kv_heads=2, hidden=32), vocabulary=257, rope_base=1e4)
    initialize(model, seed=0)
    inputs, labels = next(iter(token_batches(TOKENS, SETTINGS)))

    @torch.no_grad()
    def loss() -> float:
        return float(functional.cross_entropy(model(inputs).flatten(0, 1), labels.flatten()))

    before = loss()
    optimizer = torch.optim.AdamW(model.parameters())
    for epoch in range(8):
        language_epoch(model, optimizer, TOKENS, SETTINGS, step=10 * epoch)
    assert loss() < 0.5 * before
