"""torchtitan's model in the benchmark equals the trainer's model, both train, and each GPU variant has a rate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from bench import trainer_rank
from bench.reference_loops import TorchtitanModel, torchtitan_model
from bench.trainer import variant_rate
from bench.trainer_rank import GPU_VARIANTS, KINDS, language_blocks, variant_config
from trainer.config import LanguageConfig
from trainer.language.decoder import Decoder, initialize, join_qkv, split_qkv
from trainer.language.sizes import Sizes

CPU = torch.device("cpu")
SMALL = LanguageConfig(layers=2, width=64, heads=4, kv_heads=2, hidden=96, context=32, batch_size=2, bucket="")


def interleave_halves(weight: torch.Tensor, head_width: int) -> torch.Tensor:
    """Return query or key rows in torchtitan's order, in which each rotary pair is two neighbouring rows."""
    halves = weight.reshape(-1, 2, head_width // 2, weight.shape[1])
    return halves.transpose(1, 2).reshape(weight.shape)


@torch.no_grad()
def copy_weights(own: Any, theirs: TorchtitanModel, sizes: Sizes) -> None:
    """Copy the trainer's weights into torchtitan's model."""
    target = theirs.decoder
    target.tok_embeddings.weight.copy_(own.embedding.weight)
    target.norm.weight.copy_(own.norm.weight)
    for block, layer in zip(own.blocks, target.layers.values(), strict=True):
        attention, feed_forward = block.attention, block.feed_forward
        query, key, value = split_qkv(attention.qkv.weight, sizes)
        query, key = (interleave_halves(each, sizes.head_width) for each in (query, key))
        layer.attention.qkv_linear.wqkv.weight.copy_(join_qkv([query, key, value], sizes.kv_heads))
        layer.attention.wo.weight.copy_(attention.out.weight)
        layer.feed_forward.w1.weight.copy_(feed_forward.gate.weight)
        layer.feed_forward.w2.weight.copy_(feed_forward.down.weight)
        layer.feed_forward.w3.weight.copy_(feed_forward.up.weight)
        layer.attention_norm.weight.copy_(block.attention_norm.weight)
        layer.ffn_norm.weight.copy_(block.feed_forward_norm.weight)


def test_torchtitan_and_trainer_models_with_the_same_weights_give_the_same_scores() -> None:
    own = Decoder(SMALL.sizes, vocabulary=SMALL.vocabulary, rope_base=SMALL.rope_base)
    initialize(own, seed=0)
    theirs = torchtitan_model(SMALL, CPU)
    assert sum(map(torch.numel, theirs.parameters())) == sum(map(torch.numel, own.parameters()))
    copy_weights(own, theirs, SMALL.sizes)
    tokens = torch.randint(256, (2, 32), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(theirs(tokens), own(tokens), rtol=1e-5, atol=1e-5)


def test_torchtitan_model_with_float8_converts_the_layers_of_blocks() -> None:
    config = LanguageConfig(**{**vars(SMALL), "amp": True, "float8": "rowwise"})
    model = torchtitan_model(config, CPU)
    found = {name.rpartition(".")[2] for name, layer in model.named_modules() if "Float8" in type(layer).__name__}
    assert found == {"wqkv", "wo", "w1", "w2", "w3"}


@pytest.mark.usefixtures("watchdogs")
@pytest.mark.parametrize("with_torchtitan", [True, False])
def test_language_blocks_of_both_sides_train_on_all_steps(
    with_torchtitan: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    compiled: list[nn.Module] = []
    monkeypatch.setattr(nn.Module, "compile", lambda model, **_options: compiled.append(model))
    monkeypatch.setattr(trainer_rank, "LANGUAGE_STEPS", 20)
    config = LanguageConfig(**{**vars(SMALL), "compile": True, "data_dir": str(tmp_path), "epochs": 3})
    blocks = language_blocks(config, tmp_path, with_torchtitan=with_torchtitan)
    assert len(compiled) == (4 if with_torchtitan else 2), "each block of each model must be compiled"
    assert all(blocks[side]()[0] > 0 for side in ("ours", "theirs"))
    output = capsys.readouterr().out
    assert "step=20/20 " in output, "Trainyard's loop must train on all steps"
    assert "step 20 loss" in output, "the plain loop must train on all steps"


@pytest.mark.parametrize("variant", GPU_VARIANTS)
def test_gpu_variants_have_a_kind_and_a_rate(variant: str) -> None:
    assert f"gpu_{variant}" in KINDS
    config = variant_config(Path("/texts"), variant)
    assert (config.compile, config.float8 != "none") == (variant != "eager", variant == "float8")
    # 10 steps of 4096 tokens in 4 s.
    result = variant_rate(variant, "NVIDIA H100 80GB HBM3", 4.0, 989e12)
    assert result.line() == f"gpu-language-rate-{variant}  10,240 tokens/s on NVIDIA H100 80GB HBM3, MFU 8.5%"
    assert variant_rate(variant, "some GPU", 4.0, None).line().endswith("no peak is known")
