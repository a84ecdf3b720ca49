"""Sizes of language models: weights and FLOPs of presets, groups of ranks, and invalid sizes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.config import LanguageConfig, parse
from trainer.exit_codes import ConfigurationError
from trainer.language.decoder import Decoder
from trainer.language.sizes import PRESETS, Parallelism, check_tensor_size, divide_ranks

LLAMA_VOCABULARY = 128_256
LLAMA = {"1b": 1_235_814_400, "3b": 3_212_749_824, "8b": 8_030_261_248, "70b": 70_553_706_496}
"""Numbers of weights of Llama 3.2 (1b, 3b) and 3.1 (8b, 70b), from the headers of the published safetensors."""
SUFFIXES = {"m": 10**6, "b": 10**9}


def num_weights(preset: str, vocabulary: int) -> int:
    """Return the number of a preset's weights. The model uses no memory."""
    with torch.device("meta"):
        model = Decoder(PRESETS[preset], vocabulary=vocabulary, rope_base=500_000)
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("preset", LLAMA)
def test_llama_presets_have_the_published_numbers_of_weights(preset: str) -> None:
    assert num_weights(preset, LLAMA_VOCABULARY) == LLAMA[preset]


@pytest.mark.parametrize("preset", PRESETS)
def test_preset_name_has_nearly_the_number_of_weights(preset: str) -> None:
    number_in_name = int(preset[:-1]) * SUFFIXES[preset[-1]]
    assert 0.7 < num_weights(preset, 320) / number_in_name < 1.3


@pytest.mark.parametrize("preset", PRESETS)
def test_matrix_weights_and_other_weights_add_up_to_the_model(preset: str) -> None:
    sizes = PRESETS[preset]
    others = sizes.width * (2 * sizes.layers + 1) + (0 if sizes.is_tied else 320 * sizes.width)
    assert sizes.matrix_weights(320) + others == num_weights(preset, 320)


def test_flops_per_token_of_llama_8b_are_near_a_published_measurement() -> None:
    # 744 TFLOP/s at 14,451 tokens/s: https://github.com/NVIDIA-NeMo/Megatron-Bridge, performance summary 25.11.
    counted = PRESETS["8b"].flops_per_token(context=8192, vocabulary=LLAMA_VOCABULARY)
    assert counted == pytest.approx(744e12 / 14_451, rel=0.01)


def test_flops_per_token_of_frozen_weights_exclude_their_gradients() -> None:
    sizes, adapters = PRESETS["8b"], 21_000_000
    counted = sizes.flops_per_token(context=8192, vocabulary=LLAMA_VOCABULARY, adapters=adapters)
    saved = sizes.flops_per_token(context=8192, vocabulary=LLAMA_VOCABULARY) - counted
    assert saved == 2 * sizes.matrix_weights(LLAMA_VOCABULARY) - 6 * adapters


@pytest.mark.parametrize(
    ("text", "world", "expected"),
    [
        ("", 1, (1, 1, 1)),
        ("", 6, (6, 1, 1)),
        ("shard=4", 8, (2, 4, 1)),
        ("shard=auto", 8, (1, 8, 1)),
        ("data=2,shard=auto,tensor=2", 8, (2, 2, 2)),
        ("data=auto,tensor=4", 8, (2, 1, 4)),
        ("tensor=2,data=1,shard=1", 2, (1, 1, 2)),
    ],
    ids=lambda value: "x".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_divide_ranks_returns_the_sizes_of_the_groups(text: str, world: int, expected: tuple[int, int, int]) -> None:
    data, shard, tensor = expected
    assert divide_ranks(text, world) == Parallelism(data=data, shard=shard, tensor=tensor)


@given(st.integers(1, 64), st.sampled_from(["shard=3", "shard=2,tensor=2", "data=2,shard=2", "data=auto,tensor=5"]))
def test_divide_ranks_uses_all_ranks_or_raises(world: int, text: str) -> None:
    product = {"shard=3": 3, "data=auto,tensor=5": 5}.get(text, 4)
    if world % product or (text == "data=2,shard=2" and world != product):
        with pytest.raises(ConfigurationError, match=f"the number of ranks, {world}"):
            divide_ranks(text, world)
    else:
        found = divide_ranks(text, world)
        assert found.data * found.shard * found.tensor == world


@pytest.mark.parametrize(
    ("flags", "texts"),
    [
        (["--preset=2m"], ["'2m'", "--preset"]),
        (["--width=100"], ["width = 100", "a multiple of 8"]),
        (["--heads=6", "--width=144", "--kv-heads=4"], ["kv_heads = 4", "a divisor of heads, 6"]),
        (["--parallelism=shard=2,shard=2"], ["parallelism = 'shard=2,shard=2'", "each group once"]),
        (["--parallelism=shard=auto,tensor=auto"], ["parallelism = ", "`auto` at most once"]),
        (["--parallelism=shards=2"], ["parallelism = 'shards=2'", "shard=8,tensor=2"]),
        (["--parallelism=shard=0"], ["parallelism = 'shard=0'"]),
        (["--vocabulary=256"], ["vocabulary = 256", "257 to"]),
    ],
    ids=" ".join,
)
def test_invalid_sizes_are_rejected(flags: list[str], texts: list[str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(["language", *flags])
    error = str(caught.value)
    assert [text for text in texts if text not in error] == [], error


def test_size_flags_replace_sizes_of_the_preset() -> None:
    config = parse(["language", "--preset=10m", "--layers=2", "--kv-heads=6", "--output=untied"])
    assert isinstance(config, LanguageConfig)
    assert config.sizes == replace(PRESETS["10m"], layers=2, kv_heads=6, is_tied=False)


@pytest.mark.parametrize(("preset", "tensor", "name"), [("1m", 4, "kv_heads"), ("10m", 4, "heads"), ("1m", 3, "heads")])
def test_tensor_size_that_does_not_divide_the_heads_is_rejected(preset: str, tensor: int, name: str) -> None:
    with pytest.raises(
        ConfigurationError, match=rf"parallelism = tensor={tensor}: must be a divisor of {name}, \d+; lower tensor"
    ):
        check_tensor_size(PRESETS[preset], tensor, context=256, vocabulary=320)
    check_tensor_size(PRESETS[preset], 2, context=256, vocabulary=320)
