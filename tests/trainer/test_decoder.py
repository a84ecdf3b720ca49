"""The decoder: attention within documents, rotary embeddings, initial weights, losses and clipping."""

from __future__ import annotations

import math
from collections import Counter as Counts
from typing import Any

import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.language.decoder import Attention, Decoder, document_mask, initialize, rotate, rotation_of, split_qkv
from trainer.language.sizes import PRESETS, SEPARATOR, Sizes
from trainer.language.task import clip_gradients, losses

SMALL = Sizes(layers=2, width=32, heads=4, kv_heads=2, hidden=48)


def small(*, seed: int = 0, sizes: Sizes = SMALL) -> Decoder:
    """Return a small model with larger weights than usual, which make differences visible."""
    model = Decoder(sizes, vocabulary=320, rope_base=10_000)
    initialize(model, seed=seed)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                weight.mul_(10)
    return model


def tokens(*documents: str) -> torch.Tensor:
    """Return the documents as one sample."""
    return torch.tensor([[token for text in documents for token in (SEPARATOR, *text.encode())]])


@torch.no_grad()
def test_token_depends_only_on_earlier_tokens() -> None:
    model = small()
    one, other = model(tokens("abcdef")), model(tokens("abcxyz"))
    assert torch.equal(one[:, :4], other[:, :4])
    assert not torch.allclose(one[:, 4:], other[:, 4:], atol=1e-3)


@torch.no_grad()
def test_documents_of_a_sample_do_not_see_each_other() -> None:
    model = small()
    alone, packed, swapped = model(tokens("hello")), model(tokens("abc", "hello")), model(tokens("xyz", "hello"))
    torch.testing.assert_close(packed[:, 4:], swapped[:, 4:], atol=0, rtol=0)
    # Rotary embeddings depend only on distances, so a document's place in the sample has no effect.
    torch.testing.assert_close(packed[:, 4:], alone, atol=1e-4, rtol=1e-4)


def test_document_mask_separates_documents() -> None:
    assert document_mask(tokens("abc")) is None
    mask = document_mask(tokens("a", "b"))
    assert mask is not None
    expected = [[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1]]
    assert mask.int().tolist() == [[expected]]


@torch.no_grad()
def test_attention_equals_its_definition() -> None:
    torch.manual_seed(0)
    sizes, hidden = Sizes(layers=1, width=24, heads=6, kv_heads=2, hidden=1), torch.randn(2, 5, 24)
    attention, rotation = Attention(sizes), rotation_of(5, 4, 10_000, torch.device("cpu"))
    found = attention(hidden, rotation, None)
    heads = []
    for head in range(6):
        query, key, value = (
            functional.linear(hidden, weight.view(-1, 4, 24)[number])
            for weight, number in zip(split_qkv(attention.qkv.weight, sizes), (head, head // 3, head // 3), strict=True)
        )
        scores = rotate(query, rotation) @ rotate(key, rotation).transpose(1, 2) / math.sqrt(4)
        later_tokens = torch.ones(5, 5).triu(1).bool()
        heads.append(scores.masked_fill(later_tokens, -math.inf).softmax(-1) @ value)
    torch.testing.assert_close(found, functional.linear(torch.cat(heads, dim=-1), attention.out.weight))


def test_rotation_keeps_norms_and_depends_on_distance() -> None:
    rotation = rotation_of(9, 8, 100, torch.device("cpu"))
    query, key = (rotate(torch.randn(8).expand(9, 8), rotation) for _ in range(2))
    torch.testing.assert_close(query.norm(dim=1), query[0].norm().expand(9))
    products = query @ key.T
    torch.testing.assert_close(products[5, 2], products[8, 5], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("is_tied", [True, False])
def test_first_weights_depend_on_seed_and_name(is_tied: bool) -> None:
    sizes = Sizes(layers=2, width=32, heads=4, kv_heads=2, hidden=48, is_tied=is_tied)
    first, again, other = (dict(small(seed=seed, sizes=sizes).named_parameters()) for seed in (0, 0, 1))
    assert ("head.weight" in first) is not is_tied
    assert all(torch.equal(weight, again[name]) for name, weight in first.items())
    assert not torch.equal(first["embedding.weight"], other["embedding.weight"])
    assert not torch.equal(first["blocks.0.feed_forward.up.weight"], first["blocks.1.feed_forward.up.weight"])


class Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no type for it
    """Count the operations of a computation by name."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # as above
        self.counts: Counts[str] = Counts()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an operation and run it."""
        del types
        self.counts[func.__name__] += 1
        return func(*args, **(kwargs or {}))


def gradients(checkpointing: str) -> tuple[list[torch.Tensor], Counts[str]]:
    """Return the gradients of a small model, and the operations that computed them."""
    model = Decoder(SMALL, vocabulary=320, rope_base=10_000, checkpointing=checkpointing)
    initialize(model, seed=0)
    with Counter() as counter:
        model(tokens("hello", "world")).square().sum().backward()
    return [weight.grad for weight in model.parameters() if weight.grad is not None], counter.counts


def test_activation_checkpointing_gives_equal_gradients() -> None:
    (expected, plain), (full, twice), (selective, partly) = map(gradients, ("none", "full", "selective"))
    for found in (full, selective):
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    products = SMALL.layers * 5
    # The backward pass of a block does not need its last product.
    assert plain["mm.default"] + products - SMALL.layers <= twice["mm.default"] <= plain["mm.default"] + products
    assert partly["mm.default"] == plain["mm.default"]
    assert partly["silu.default"] == twice["silu.default"] == plain["silu.default"] + SMALL.layers


@pytest.mark.parametrize("factor", [8, 32])
def test_rope_factor_divides_only_low_frequencies(factor: float) -> None:
    # Wave lengths of a head of 128 with base 500,000: up to 2 pi x 500,000 tokens.
    (_, plain), (_, slowed) = (rotation_of(2, 128, 500_000, torch.device("cpu"), factor=each) for each in (1, factor))
    plain, slowed = plain[1, 64:].asin(), slowed[1, 64:].asin()
    lengths = 2 * math.pi / 500_000 ** (-torch.arange(0, 128, 2) / 128)
    fast, slow = lengths < 8192 / 4, (lengths > 8192) & (lengths < 20_000)
    assert fast.sum() > 20
    assert slow.sum() > 2
    torch.testing.assert_close(slowed[fast], plain[fast])
    torch.testing.assert_close(slowed[slow], plain[slow] / factor, rtol=1e-4, atol=0)
    between = ~fast & (lengths < 8192)
    assert (slowed[between] < plain[between]).all()


def test_initial_loss_equals_that_of_uniform_guessing() -> None:
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
    ours, theirs = ([torch.nn.Parameter(torch.zeros(size)) for size in (3, 5)] for _ in range(2))
    for mine, other in zip(ours, theirs, strict=True):
        mine.grad = torch.randn(len(mine))
        other.grad = mine.grad.clone()
    expected = torch.nn.utils.clip_grad_norm_(theirs, max_norm or math.inf)
    torch.testing.assert_close(clip_gradients(ours, max_norm), expected)
    torch.testing.assert_close([weight.grad for weight in ours], [weight.grad for weight in theirs])
