"""Ranks in any groups have the losses of one process, and resume from checkpoints of other groups."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.trainer.language import CONSTANT_RATE_FLAGS, STEPS, evaluations, losses, train, write_texts
from tests.trainer.processes import run

TOLERANCE = 1e-5
"""Largest relative difference of a loss."""
GROUPS = {
    "one": ("", 1, 1),
    "ddp": ("", 2, 2),
    "fsdp": ("shard=4", 4, 4),
    "fsdp-2": ("shard=2", 2, 2),
    "hsdp": ("data=2,shard=2", 4, 4),
    "tensor": ("tensor=2", 2, 1),
    "fsdp-tensor": ("shard=2,tensor=2", 4, 2),
    "copies-tensor": ("data=2,tensor=2", 4, 2),
}
"""Name -> value of `--parallelism`, number of ranks, and number of batches in a step."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def trained(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the bucket of a run of one process."""
    bucket = tmp_path_factory.mktemp("one")
    train(data, bucket)
    return bucket


@pytest.fixture(scope="module")
def expected_losses(trained: Path) -> list[float]:
    """Return the loss of each step of one process. Check that the process learns."""
    found = losses(trained, 1)
    assert len(found) == STEPS
    assert found[-1] < 0.8 * found[0]
    return found


@pytest.fixture(scope="module")
def adapter_flags(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Export the trained model. Return the flags of a run that trains adapters of it."""
    folder = tmp_path_factory.mktemp("published")
    words = (f"--checkpoint={trained}/checkpoints/training", f"--to={folder}")
    run(*words, recipe="export", data=trained)
    return (f"--init-from={folder}", "--lora-rank=4", *CONSTANT_RATE_FLAGS, "--learning-rate=1e-3")


@pytest.mark.parametrize("name", ["ddp", "fsdp", "hsdp", "tensor", "fsdp-tensor", "copies-tensor"])
def test_groups_of_ranks_have_the_losses_of_one_process(
    name: str, data: Path, expected_losses: list[float], tmp_path: Path
) -> None:
    parallelism, ranks, batches = GROUPS[name]
    train(data, tmp_path, f"--parallelism={parallelism}", ranks=ranks, batches=batches)
    assert losses(tmp_path, ranks) == pytest.approx(expected_losses, rel=TOLERANCE)


def test_shards_with_accumulated_gradients_have_the_losses_of_one_process(
    data: Path, expected_losses: list[float], tmp_path: Path
) -> None:
    train(data, tmp_path, "--parallelism=shard=2", "--accumulate=2", ranks=2, batches=2)
    assert losses(tmp_path, 2) == pytest.approx(expected_losses, rel=TOLERANCE)


@pytest.mark.parametrize(("name", "kind"), [("fsdp", "full"), ("fsdp-tensor", "selective"), ("ddp", "selective")])
def test_groups_with_activation_checkpointing_have_the_losses_of_one_process(
    name: str, kind: str, data: Path, expected_losses: list[float], tmp_path: Path
) -> None:
    parallelism, ranks, batches = GROUPS[name]
    flags = (f"--parallelism={parallelism}", f"--activation-checkpointing={kind}")
    train(data, tmp_path, *flags, ranks=ranks, batches=batches)
    assert losses(tmp_path, ranks) == pytest.approx(expected_losses, rel=TOLERANCE)


def test_groups_of_ranks_train_adapters_as_one_process(
    data: Path, adapter_flags: tuple[str, ...], tmp_path: Path
) -> None:
    train(data, tmp_path / "one", *adapter_flags)
    expected_losses = losses(tmp_path / "one", 1)
    assert len(expected_losses) == STEPS
    for name in ("tensor", "fsdp-tensor"):
        parallelism, ranks, batches = GROUPS[name]
        train(data, tmp_path / name, *adapter_flags, f"--parallelism={parallelism}", ranks=ranks, batches=batches)
        assert losses(tmp_path / name, ranks) == pytest.approx(expected_losses, rel=TOLERANCE), name


def test_untied_model_with_uneven_shards_has_the_losses_of_one_process(data: Path, tmp_path: Path) -> None:
    # 64 rows of a matrix are not divisible by three ranks.
    flags = ("--output=untied", "--vocabulary=257")
    train(data, tmp_path / "one", "--batch-size=6", *flags)
    train(data, tmp_path / "three", "--batch-size=2", "--parallelism=shard=3", *flags, ranks=3)
    assert losses(tmp_path / "three", 3)[:40] == pytest.approx(losses(tmp_path / "one", 1)[:40], rel=TOLERANCE)


WEIGHTS_CHAIN = ["fsdp", "fsdp-2", "fsdp", "tensor", "one", "fsdp-tensor", "ddp"]
ADAPTER_CHAIN = ["tensor", "one", "tensor", "fsdp-tensor", "tensor", "one"]
"""Groups that continue a run, in order. The first list is for a run of all weights, the second for adapters."""


@pytest.mark.parametrize(
    ("names", "is_adapted"), [(WEIGHTS_CHAIN, False), (ADAPTER_CHAIN, True)], ids=["weights", "adapters"]
)
def test_checkpoints_are_resumed_by_other_groups_of_ranks(
    names: list[str], is_adapted: bool, adapter_flags: tuple[str, ...], tmp_path: Path
) -> None:
    data = write_texts(tmp_path / "texts", steps=8)
    flags = adapter_flags if is_adapted else CONSTANT_RATE_FLAGS
    train(data, tmp_path / "whole", f"--epochs={len(names)}", *flags)
    for epochs, name in enumerate(names, start=1):
        parallelism, ranks, batches = GROUPS[name]
        words = (f"--parallelism={parallelism}", f"--epochs={epochs}", *flags)
        result = train(data, tmp_path / "parts", *words, ranks=ranks, batches=batches)
        assert not result.events("checkpoint_skipped"), result.output
        assert len(result.events("resume")) == (ranks if epochs > 1 else 0), result.output
    assert evaluations(tmp_path / "parts") == pytest.approx(evaluations(tmp_path / "whole"), rel=TOLERANCE)


@pytest.mark.parametrize(
    "flags", ["tensor=2", pytest.param("shard=2 --activation-checkpointing=selective", marks=pytest.mark.long)]
)
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs g++ on a CPU, and there is none here")
def test_compiled_shards_have_the_losses_of_one_process(
    flags: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "kernels"))
    data = write_texts(tmp_path / "texts", steps=6)
    train(data, tmp_path / "one")
    words = f"--compile --parallelism={flags}".split()
    train(data, tmp_path / "shards", *words, ranks=2, batches=1 if "tensor" in flags else 2)
    assert list((tmp_path / "kernels").rglob("*.so")), "no kernel was compiled"
    assert losses(tmp_path / "shards", 2) == pytest.approx(losses(tmp_path / "one", 1), rel=TOLERANCE)
