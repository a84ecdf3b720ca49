"""GPU benchmark on the CPU: a small epoch of each loop, minimum rates, and goals that need a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from bench import trainer
from bench.measure import compare, time_rounds
from bench.reference_loops import GPU_STEPS, LARGEST_BATCH, gpu_config, gpu_loops
from bench.trainer import GPU_GOALS, gpu_rates
from bench.trainer_rank import gpu_blocks
from trainer.runtime.base import BFLOAT16_FLAGS, CPU_INFO
from trainer.watchdog import Watchdog

SMALL = dataclasses.replace(
    gpu_config(2**30), arch="resnet18", image_size=32, num_classes=10, batch_size=4, steps_per_epoch=2, device="cpu"
)


def test_gpu_config_batch_is_power_of_two_for_a_quarter_of_the_memory() -> None:
    sizes = {gib: gpu_config(gib * 2**30).batch_size for gib in (1, 16, 24, 79, 140)}
    assert sizes == {1: 2, 16: 32, 24: 32, 79: 128, 140: LARGEST_BATCH}
    assert gpu_config(16 * 2**30).steps_per_epoch == GPU_STEPS


@contextmanager
def recorded_dtypes() -> Iterator[set[torch.dtype]]:
    """Yield a set to which linear layers add the data type of their outputs."""
    dtypes: set[torch.dtype] = set()

    def hook(module: torch.nn.Module, _inputs: object, output: torch.Tensor) -> None:
        if isinstance(module, torch.nn.Linear) and not output.is_meta:
            dtypes.add(output.dtype)

    handle = torch.nn.modules.module.register_module_forward_hook(hook)
    yield dtypes
    handle.remove()


def test_gpu_blocks_and_loops_compute_in_the_expected_data_types(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watchdogs: list[Watchdog]
) -> None:
    compiled: list[str] = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda model: compiled.append(type(model).__name__))
    ours = gpu_blocks(SMALL, tmp_path)
    theirs = gpu_loops(SMALL, torch.device("cpu"), torch.bfloat16)
    assert compiled == ["ResNet"], "exactly one block must compile its model"
    assert {side for _, *sides in GPU_GOALS for side in sides} == {*ours, *theirs} - {"compiled"}
    dtypes: dict[str, set[torch.dtype]] = {}
    for side, block in ours.items():
        with recorded_dtypes() as dtypes[side]:
            seconds = block()
        assert seconds
        assert seconds[0] > 0
    for side, loop in theirs.items():
        with recorded_dtypes() as dtypes[side]:
            loop()
    full, half = {torch.float32}, {torch.bfloat16}
    # On a CPU without bfloat16 instructions, the trainer computes in float32.
    fast = half if BFLOAT16_FLAGS & set(CPU_INFO.read_text(encoding="ascii", errors="replace").split()) else full
    assert dtypes == {
        "ours": full,
        "torchvision": full,
        "imagenet": full,
        "best": fast,
        "compiled": fast,
        "plain": fast,
        "timm": half,
    }
    assert len(watchdogs) == 3


def test_time_rounds_alternates_sides_and_discards_the_first_round() -> None:
    calls: list[str] = []

    def run_block(side: str) -> tuple[float, ...]:
        calls.append(side)
        return (float(len(calls)),)

    seconds = time_rounds("x", {"a": run_block, "b": run_block}, 2)
    assert calls == ["a", "b"] * 3
    assert seconds == {"a": (3.0, 5.0), "b": (4.0, 6.0)}
    (measure,) = compare(seconds, {("a-to-b", "a", "b"): 1.0})
    assert (measure.name, measure.ours, measure.theirs, measure.is_met) == ("a-to-b", (3, 5), (4, 6), True)


def test_gpu_rates_floor_applies_to_fastest_side() -> None:
    slow, fast = gpu_rates("NVIDIA H200", {"best": 3500.0, "compiled": 4100.0})
    assert (slow.facts["floor"], slow.facts["goal"], slow.is_met) == (None, None, True)
    assert fast.line() == "gpu-rate-compiled  4,100 images/s on NVIDIA H200  floor 4,000, goal 5,800  met"
    assert fast.record()["met"]
    (slow_rate,) = gpu_rates("NVIDIA H200", {"best": 3999.0})
    assert slow_rate.line().endswith("missed")
    assert not slow_rate.record()["met"]
    (other,) = gpu_rates("Tesla T4", {"best": 100.0})
    assert other.is_met
    assert other.line() == "gpu-rate-best  100 images/s on Tesla T4  no floor applies"


def test_main_for_gpu_goals_without_gpu_reports_it_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.trainer", f"--json={tmp_path}/found.json", "--only=gpu"])
    assert trainer.main() == 2
    assert "there is no GPU here" in capsys.readouterr().err


def test_main_without_gpu_lists_unmeasured_goals(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(trainer, "measures", dict)
    monkeypatch.setattr("sys.argv", ["bench.trainer", f"--json={tmp_path}/found.json"])
    assert trainer.main() == 0
    output = capsys.readouterr().out
    for name in trainer.UNMEASURED_WITHOUT_GPU:
        assert f"NOT MEASURED  {name}: no GPU here" in output
