"""float8 without a GPU. torchao's emulation rounds like tensor cores, but multiplies in higher precision."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

from tests.trainer.language import FLAGS, UNCHANGING_FLAGS, evaluations, losses, train, write_texts
from tests.trainer.processes import run
from trainer.config import LanguageConfig
from trainer.exit_codes import BAD_CONFIGURATION, ConfigurationError
from trainer.language.decoder import FLOAT8_CAPABILITY, Decoder, initialize, use_float8
from trainer.language.sizes import Sizes

EMULATED_PROGRAM = "tests.trainer.emulated_float8"
TOLERANCE = 1e-2
"""Largest relative difference between a step's loss with float8 and without it."""
SIZES = Sizes(layers=2, width=64, heads=4, kv_heads=2, hidden=96)
CPU = torch.device("cpu")
LAYERS = {"qkv", "out", "gate", "up", "down"}
"""Names of the linear layers of a block."""


def decoder(sizes: Sizes = SIZES, *, checkpointing: str = "none") -> Decoder:
    """Return a model on the device `meta`, without memory for its weights."""
    with torch.device("meta"):
        return Decoder(sizes, vocabulary=320, rope_base=1e4, checkpointing=checkpointing)


@pytest.mark.parametrize(
    ("hidden", "tensor", "converted"),
    [(96, 1, LAYERS), (100, 1, {"qkv", "out"}), (96, 2, LAYERS), (96, 4, {"qkv", "out"})],
    ids=["all", "hidden", "two ranks", "four ranks"],
)
def test_float8_converts_block_layers_with_divisible_sizes(hidden: int, tensor: int, converted: set[str]) -> None:
    model = decoder(Sizes(layers=2, width=64, heads=4, kv_heads=2, hidden=hidden))
    before = {name: (weight.shape, weight.dtype) for name, weight in model.named_parameters()}
    use_float8(model, "tensorwise", CPU, tensor=tensor, emulate=True)
    found = [name for name, layer in model.named_modules() if type(layer).__name__ == "Float8Linear"]
    assert {name.rpartition(".")[2] for name in found} == converted
    assert len(found) == 2 * len(converted)
    assert type(model.head) is nn.Linear
    assert {name: (weight.shape, weight.dtype) for name, weight in model.named_parameters()} == before
    assert model.head.weight is model.embedding.weight
    assert not list(model.buffers())


@pytest.mark.parametrize("scaling", ["tensorwise", "rowwise"])
def test_float8_gradients_do_not_depend_on_activation_checkpointing(scaling: str) -> None:
    tokens = torch.randint(256, (2, 32), generator=torch.Generator().manual_seed(0))
    found: dict[str, list[torch.Tensor]] = {}
    for kind in ("none", "selective", "full"):
        model = decoder(checkpointing=kind)
        use_float8(model, scaling, CPU, tensor=1, emulate=True)
        model.to_empty(device="cpu")
        model.tie()
        initialize(model, seed=0)
        torch.autograd.backward(functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()))
        found[kind] = [weight.grad for weight in model.parameters() if weight.grad is not None]
    for kind in ("selective", "full"):
        assert all(map(torch.equal, found["none"], found[kind])), kind


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("texts"), steps=20)


@pytest.fixture(scope="module")
def plain(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bucket of a run without float8."""
    bucket = tmp_path_factory.mktemp("plain")
    train(data, bucket, "--amp")
    return bucket


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bucket of a run of two epochs with float8."""
    bucket = tmp_path_factory.mktemp("whole")
    train(data, bucket, "--amp", "--float8=tensorwise", "--epochs=2", program=EMULATED_PROGRAM)
    return bucket


@pytest.mark.parametrize(
    ("scaling", "parallelism", "ranks", "batches"),
    [
        ("rowwise", "", 1, 1),
        ("tensorwise", "", 2, 2),
        ("tensorwise", "shard=2", 2, 2),
        ("tensorwise", "tensor=2", 2, 1),
        ("rowwise", "tensor=2", 2, 1),
    ],
)
def test_float8_losses_are_close_to_losses_without_float8(
    scaling: str, parallelism: str, ranks: int, batches: int, data: Path, plain: Path, tmp_path: Path
) -> None:
    flags = ("--amp", f"--float8={scaling}", f"--parallelism={parallelism}")
    train(data, tmp_path, *flags, ranks=ranks, batches=batches, program=EMULATED_PROGRAM)
    found, expected = losses(tmp_path, ranks), losses(plain, 1)
    assert found == pytest.approx(expected, rel=TOLERANCE)
    assert found != pytest.approx(expected, rel=1e-6), "nothing was rounded"


def test_float8_export_has_plain_weights_that_run_without_float8(
    data: Path, plain: Path, whole: Path, tmp_path: Path
) -> None:
    for name, bucket in (("float8", whole), ("plain", plain)):
        words = (f"--checkpoint={bucket}/checkpoints/training", f"--to={tmp_path / name}")
        run(*words, recipe="export", data=data)
    found, expected = (load_file(tmp_path / name / "model.safetensors") for name in ("float8", "plain"))
    assert {name: (weight.shape, weight.dtype) for name, weight in found.items()} == {
        name: (weight.shape, weight.dtype) for name, weight in expected.items()
    }
    train(data, tmp_path / "again", f"--init-from={tmp_path}/float8", "--amp", *UNCHANGING_FLAGS)
    assert evaluations(tmp_path / "again")[-1] == pytest.approx(evaluations(whole)[-1], rel=TOLERANCE)


def test_float8_checkpoint_is_resumed_without_float8(data: Path, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole, tmp_path / "bucket")
    result = train(data, tmp_path / "bucket", "--amp", "--epochs=3")
    assert len(result.events("resume")) == 1
    assert not result.events("checkpoint_skipped")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"amp": False}, "amp = False: must be True with float8; change --amp, or leave --float8 out"),
        ({"context": 100}, "context = 100: must be a multiple of 16 with float8"),
        ({"lora_rank": 8, "init_from": "/model"}, "lora_rank = 8: must be 0 with float8"),
    ],
    ids=["amp", "context", "lora"],
)
def test_settings_that_float8_excludes_are_rejected(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        LanguageConfig(**{"float8": "rowwise", "amp": True, **values})


def test_device_without_float8_is_rejected(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run(*FLAGS, "--amp", "--float8=rowwise", recipe="language", data=data, code=BAD_CONFIGURATION)
    message = "float8 = 'rowwise': must be 'none' without a GPU of compute capability 8.9 or higher"
    assert message in result.output
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: (8, 0))
    with pytest.raises(ConfigurationError, match="compute capability"):
        use_float8(decoder(), "rowwise", torch.device("cuda"), tensor=1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _device: FLOAT8_CAPABILITY)
    use_float8(decoder(), "rowwise", torch.device("cuda"), tensor=1)


def test_missing_torchao_is_bad_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torchao.float8", None)
    with pytest.raises(ConfigurationError, match="'none' in an image without torchao"):
        use_float8(decoder(), "rowwise", CPU, tensor=1, emulate=True)
