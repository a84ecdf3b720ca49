"""The decoder: attention within documents, recomputed activations, initial weights, losses and gradient clipping."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.language.decoder import Decoder, document_mask, initialize
from trainer.language.sizes import PRESETS, SEPARATOR, Sizes
from trainer.language.task import TokenMeter, clip_gradients, losses

SMALL = Sizes(layers=2, width=32, heads=4, kv_heads=2, hidden=48)


def small(*, seed: int = 0, sizes: Sizes = SMALL) -> Decoder:
    """Return a small model. Its initial matrices are multiplied by ten, so that differences are visible."""
    model = Decoder(sizes, vocabulary=320, rope_base=10_000)
    initialize(model, seed=seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(10)
    return model


def tokens(*documents: str) -> torch.Tensor:
    return torch.tensor([[token for text in documents for token in (SEPARATOR, *text.encode())]])


@torch.no_grad()
def test_token_depends_only_on_earlier_tokens() -> None:
    model = small()
    one, other = model(tokens("abcdef")), model(tokens("abcxyz"))
    assert torch.equal(one[:, :4], other[:, :4])
    assert not torch.allclose(one[:, 4:], other[:, 4:], atol=1e-3)


@torch.no_grad()
def test_documents_of_a_sample_do_not_attend_to_each_other() -> None:
    model = small()
    alone, packed, swapped = model(tokens("hello")), model(tokens("abc", "hello")), model(tokens("xyz", "hello"))
    torch.testing.assert_close(packed[:, 4:], swapped[:, 4:], atol=0, rtol=0)
    # Rotary embeddings depend only on distances, so a document's position in the sample has no effect.
    torch.testing.assert_close(packed[:, 4:], alone, atol=1e-4, rtol=1e-4)


def test_document_mask_separates_documents() -> None:
    assert document_mask(tokens("abc")) is None
    mask = document_mask(tokens("a", "b"))
    assert mask is not None
    expected = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    assert mask.int().tolist() == [[expected]]


class OperationCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no type for it
    """Counter of a computation's operations by name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        self.counts[func.__name__] += 1
        return func(*args, **(kwargs or {}))


def gradients_and_operations(checkpointing: str) -> tuple[list[torch.Tensor], Counter[str]]:
    model = Decoder(SMALL, vocabulary=320, rope_base=10_000, checkpointing=checkpointing)
    initialize(model, seed=0)
    with OperationCounter() as counter:
        model(tokens("hello", "world")).square().sum().backward()
    return [weight.grad for weight in model.parameters() if weight.grad is not None], counter.counts


def test_activation_checkpointing_recomputes_activations_and_gives_equal_gradients() -> None:
    (expected, plain_counts), (full, full_counts), (selective, selective_counts) = (
        gradients_and_operations(kind) for kind in ("none", "full", "selective")
    )
    for found in (full, selective):
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    products = 5 * SMALL.layers
    # The backward pass of a block does not need the block's last product.
    extra = full_counts["mm.default"] - plain_counts["mm.default"]
    assert products - SMALL.layers <= extra <= products
    assert selective_counts["mm.default"] == plain_counts["mm.default"]
    for counts in (full_counts, selective_counts):
        assert counts["silu.default"] == plain_counts["silu.default"] + SMALL.layers


def test_initial_loss_is_near_the_loss_of_uniform_guessing() -> None:
    model = Decoder(PRESETS["1m"], vocabulary=320, rope_base=10_000)
    initialize(model, seed=0)
    sample = torch.randint(256, (4, 65))
    loss, _ = losses(model(sample[:, :-1]), sample[:, 1:], z_loss=0)
    assert loss.item() / (4 * 64) == pytest.approx(math.log(320), rel=0.02)


def test_z_loss_is_in_the_objective_but_not_in_the_loss() -> None:
    scores, labels = torch.randn(2, 3, 7), torch.tensor([[1, 2, -100], [0, -100, 6]])
    objective, loss = losses(scores, labels, z_loss=0.5)
    known = labels != -100
    torch.testing.assert_close(loss, functional.cross_entropy(scores[known], labels[known], reduction="sum"))
    torch.testing.assert_close(objective - loss, 0.5 * scores[known].logsumexp(-1).square().sum())


@pytest.mark.parametrize("max_norm", [0.0, 0.1, 1e6])
def test_clipping_returns_the_norm_and_shortens_long_gradients(max_norm: float) -> None:
    torch.manual_seed(0)
    weights, reference = ([torch.nn.Parameter(torch.zeros(size)) for size in (3, 5)] for _ in range(2))
    for weight, other in zip(weights, reference, strict=True):
        weight.grad = torch.randn(len(weight))
        other.grad = weight.grad.clone()
    expected = torch.nn.utils.clip_grad_norm_(reference, max_norm or math.inf)
    torch.testing.assert_close(clip_gradients(weights, max_norm), expected)
    torch.testing.assert_close([weight.grad for weight in weights], [weight.grad for weight in reference])


def test_infinite_gradient_norm_of_a_skipped_step_does_not_count() -> None:
    meter = TokenMeter(torch.device("cpu"), bytes_per_token=1.0)
    for norm in (2.0, float("inf"), float("nan"), 4.0):
        meter.add_norm(torch.tensor(norm))
    assert meter.take(meter.sums())[0]["gradient_norm"] == 3
    meter.add_norm(torch.tensor(float("nan")))
    assert math.isnan(meter.take(meter.sums())[0]["gradient_norm"])
    meter.add_norm(torch.tensor(5.0))
    assert meter.take(meter.sums())[0]["gradient_norm"] == 5
