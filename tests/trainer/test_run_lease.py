"""Two runs of one job at the same time: the newer run continues. The older run ends and saves no more checkpoints."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

from tests.trainer.recipes import Recipe
from tests.trainer.saving import load_newest, save_steps, state_at
from trainer.checkpoints.checkpoint import Checkpoints
from trainer.checkpoints.state import LEASE_FILE, RunLease
from trainer.checkpoints.tensor_files import MANIFEST
from trainer.exit_codes import BAD_CONFIGURATION, PREEMPTED, ConfigurationError
from trainer.runtime import Runtime
from trainer.storage import Folder


class LeasedCheckpoints(Checkpoints):
    """Checkpoints of a run that verifies its lease."""

    def __init__(self, folder: Folder, lease: RunLease, runtime: Runtime) -> None:
        super().__init__(folder.child("checkpoints"), runtime, keep=3)
        self._lease = lease

    def verify_lease(self) -> None:
        self._lease.verify()


@pytest.mark.parametrize("is_local", [True, False], ids=["disk", "bucket"])
def test_run_that_has_lost_the_lease_saves_nothing(
    is_local: bool, bucket: str, tmp_path: Path, runtime: Runtime
) -> None:
    folder = Folder(f"file://{tmp_path}/job" if is_local else f"{bucket}/job")
    first, second = RunLease(folder, "node-1"), RunLease(folder, "node-2")
    first.acquire()
    older = LeasedCheckpoints(folder, first, runtime)
    save_steps(older, 1)
    second.acquire()
    newer = LeasedCheckpoints(folder, second, runtime)
    save_steps(newer, 2, 3)
    for step in (1, 3, 4):
        older.save(step, state_at(step))
        with pytest.raises(
            ConfigurationError, match="acquired by a run that started later, on node-2; a job must have only one"
        ):
            older.wait()
    found, skipped = load_newest(newer)
    assert (found.facts["step"], skipped) == (3, [])
    assert newer.folder.names() == [f"step-{step:09d}" for step in (1, 2, 3)]


def test_save_that_loses_the_lease_writes_no_manifest(tmp_path: Path, runtime: Runtime) -> None:
    folder = Folder(f"file://{tmp_path}")
    lease = RunLease(folder, "node-1")
    lease.acquire()

    class LosingCheckpoints(LeasedCheckpoints):
        def check_tensor(self, name: str, tensor: torch.Tensor) -> None:
            del tensor
            if name == "weights":
                RunLease(folder, "node-2").acquire()

    checkpoints = LosingCheckpoints(folder, lease, runtime)
    checkpoints.save(1, state_at(1))
    with pytest.raises(ConfigurationError, match="on node-2"):
        checkpoints.wait()
    assert MANIFEST not in checkpoints.folder.child("step-000000001").names()


def test_run_with_deleted_lease_still_saves(tmp_path: Path, runtime: Runtime) -> None:
    folder = Folder(f"file://{tmp_path}")
    lease = RunLease(folder, "node-1")
    lease.acquire()
    (tmp_path / LEASE_FILE).unlink()
    checkpoints = LeasedCheckpoints(folder, lease, runtime)
    save_steps(checkpoints, 1)
    assert checkpoints.folder.names() == ["step-000000001"]


def test_newer_of_two_runs_continues(tmp_path: Path, recipe: Recipe) -> None:
    flags = ("--epochs=9999", "--log-steps=1000")
    with recipe.started(*flags, bucket=tmp_path) as first:
        first.wait_for("checkpoint ")
        with recipe.started(*flags, bucket=tmp_path, processes=2) as second:
            second.wait_for("resume")
            result = first.end(BAD_CONFIGURATION)
            assert "UserWarning" not in result.output
            assert f"error: file://{tmp_path}/training was acquired by a run that started later" in result.output
            second.wait_for("checkpoint ")
            second.hosts[0].send_signal(signal.SIGTERM)
            second.end(PREEMPTED)
