"""Sizes of language models by preset, and sizes of the groups of ranks that train one. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Annotated, Literal

from trainer.exit_codes import ConfigurationError
from trainer.rules import Text, invalid_setting

BYTES, BPE = "bytes", "bpe"
"""Values of the setting `tokenizer` that are not files."""
SEPARATOR = 256
"""Token of the byte tokenizer before each document and after the last one. Lower tokens are bytes."""
MIN_VOCABULARY = SEPARATOR + 1
ROPE_RANGE, ROPE_TOKENS = (1.0, 4.0), 8192
"""Llama 3.1 slows down rotations: fully above 8192 / 1 tokens per turn, partly above 8192 / 4, otherwise not.
The published configurations of Llama 3.1, 3.2 and 3.3 have these values."""
AUTO = 0
"""Placeholder for the size of a group that follows from the number of ranks."""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Sizes of a decoder."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    is_tied: bool = True
    """True if the output layer uses the weights of the embedding."""

    def __str__(self) -> str:
        numbers = (self.layers, self.width, self.heads, self.kv_heads, self.hidden)
        return f"decoder-{'-'.join(map(str, numbers))}{'-tied' if self.is_tied else ''}"

    @property
    def head_width(self) -> int:
        """Width of a head."""
        return self.width // self.heads

    def matrix_weights(self, vocabulary: int) -> int:
        """Return the number of weights that multiply each token: all but the norms and the input embedding."""
        attention = 2 * self.width * self.head_width * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.width * self.hidden) + vocabulary * self.width

    def flops_per_token(self, *, context: int, vocabulary: int, adapters: int = 0) -> float:
        """Return the floating-point operations of a training step per token.

        A forward pass takes two operations per weight, and a backward pass twice as many. The scores and the sums of
        attention take 12 x layers x width x context (https://arxiv.org/abs/2204.02311, appendix B). Half of that
        counts, because a token attends to half of the context on average (https://arxiv.org/abs/2307.08691, section
        4.1). `adapters` is the number of weights of LoRA's adapters. With adapters, all other weights are fixed: they
        have no gradients, which saves a third of their operations.
        """
        per_weight = 4.0 if adapters else 6.0
        return per_weight * self.matrix_weights(vocabulary) + 6.0 * adapters + 6.0 * self.layers * self.width * context


PRESETS = {
    "1m": Sizes(layers=4, width=128, heads=4, kv_heads=2, hidden=384),
    "3m": Sizes(layers=4, width=256, heads=4, kv_heads=2, hidden=704),
    "10m": Sizes(layers=6, width=384, heads=6, kv_heads=2, hidden=1024),
    "30m": Sizes(layers=10, width=512, heads=8, kv_heads=4, hidden=1408),
    "100m": Sizes(layers=16, width=768, heads=12, kv_heads=4, hidden=2048),
    "300m": Sizes(layers=24, width=1024, heads=16, kv_heads=8, hidden=3072),
    "1b": Sizes(layers=16, width=2048, heads=32, kv_heads=8, hidden=8192),
    "3b": Sizes(layers=28, width=3072, heads=24, kv_heads=8, hidden=8192),
    "8b": Sizes(layers=32, width=4096, heads=32, kv_heads=8, hidden=14336, is_tied=False),
    "70b": Sizes(layers=80, width=8192, heads=64, kv_heads=8, hidden=28672, is_tied=False),
}
"""Sizes by name. From 1b on they are those of Llama 3: https://arxiv.org/abs/2407.21783 (8B, 70B), and the published
configurations of Llama 3.2 (1B, 3B). With bytes as tokens the embedding is smaller than Llama's."""
SIZE_SETTINGS = ("layers", "width", "heads", "kv_heads", "hidden")
"""Names of the settings that replace sizes of the preset."""
PresetName = Literal["1m", "3m", "10m", "30m", "100m", "300m", "1b", "3b", "8b", "70b"]
_SIZE = r"(data|shard|tensor)=(auto|[1-9][0-9]{0,5})"
ParallelismText = Annotated[
    str,
    Text(
        rf"({_SIZE}(,{_SIZE}){{0,2}})?",
        "sizes of the groups data, shard and tensor, such as shard=8,tensor=2",
        "give --parallelism such sizes, or leave it out",
    ),
]


def choose_sizes(preset: str, output: str, settings: object) -> Sizes:
    """Return the sizes of a preset. A setting other than 0 replaces the size of the same name.

    Raises ConfigurationError if the sizes do not fit together.
    """
    given = {name: getattr(settings, name) for name in SIZE_SETTINGS}
    sizes = replace(PRESETS[preset], **{name: size for name, size in given.items() if size})
    sizes = sizes if output == "preset" else replace(sizes, is_tied=output == "tied")
    if sizes.width % sizes.heads or sizes.head_width % 2:
        allowed = f"a multiple of {2 * sizes.heads}, twice the number of heads"
        raise invalid_setting("width", sizes.width, allowed, "change --width or --heads")
    if sizes.heads % sizes.kv_heads:
        allowed = f"a divisor of heads, {sizes.heads}"
        raise invalid_setting("kv_heads", sizes.kv_heads, allowed, "change --kv-heads or --heads")
    return sizes


@dataclass(frozen=True, kw_only=True)
class Parallelism:
    """Sizes of the groups of ranks. Consecutive ranks form a tensor group, consecutive tensor groups a shard group."""

    data: int = 1
    """Number of copies of the weights."""
    shard: int = 1
    """Number of ranks that share a copy of the weights. They gather each block's weights before use."""
    tensor: int = 1
    """Number of ranks that share each matrix product and have the same samples."""

    @property
    def is_sharded(self) -> bool:
        """True if no rank has all weights."""
        return self.shard * self.tensor > 1


def parse_parallelism(text: str) -> dict[str, int]:
    """Return the sizes in a text such as `shard=8,tensor=2`, AUTO for `auto`.

    Raises ConfigurationError if a group occurs twice, or several sizes are `auto`.
    """
    pairs = [pair.split("=") for pair in text.split(",") if pair]
    sizes = {name: AUTO if size == "auto" else int(size) for name, size in pairs}
    if len(sizes) < len(pairs) or list(sizes.values()).count(AUTO) > 1:
        allowed = "sizes with each group once, and `auto` at most once"
        raise invalid_setting("parallelism", text, allowed, "remove the extra size")
    return sizes


def divide_ranks(text: str, world: int) -> Parallelism:
    """Return the sizes of the groups of `world` ranks. Raises ConfigurationError if their product cannot be `world`."""
    sizes = parse_parallelism(text)
    if AUTO not in sizes.values():
        sizes.setdefault("data", AUTO)
    relation = "divides" if AUTO in sizes.values() else "is"
    known = prod(size for size in sizes.values() if size != AUTO)
    sizes = {name: size or max(1, world // known) for name, size in sizes.items()}
    if prod(sizes.values()) != world:
        raise invalid_setting(
            "parallelism", text, f"sizes whose product {relation} the number of ranks, {world}", "change --parallelism"
        )
    return Parallelism(**sizes)


def check_tensor_size(model: Sizes, tensor: int, *, context: int, vocabulary: int) -> None:
    """Raise ConfigurationError if the model cannot be split evenly across a tensor group."""
    split = {"heads": model.heads, "kv_heads": model.kv_heads, "hidden": model.hidden}
    split |= {"context": context, "vocabulary": vocabulary}
    for name, size in split.items():
        if size % tensor:
            raise ConfigurationError(
                f"parallelism = tensor={tensor}: must be a divisor of {name}, {size}; lower tensor, or change "
                f"--{name.replace('_', '-')}"
            )
