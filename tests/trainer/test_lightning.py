"""The Lightning script under real launchers: hosts fail and return, and an epoch takes each sample once."""

from __future__ import annotations

import importlib
import os
import re
import signal
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.measure import free_port
from tests.trainer.processes import Launcher, descendants, launched, run_python
from trainer.config import DigitsConfig
from trainer.data.datasets import Digits
from trainer.data.sampler import EpochSampler
from trainer.exit_codes import BAD_CONFIGURATION
from trainer.models import digits_network
from trainer.storage import Folder

SCRIPT = "images/lightning/elastic_lightning.py"
OPTIONS = (
    "--nnodes=1:2",
    "--nproc-per-node=1",
    "--rdzv-backend=c10d",
    "--rdzv-id=one",
    "--max-restarts=9",
    "--shutdown-timeout=2",
)


def host(number: int, port: int, bucket: Path, data: Path) -> AbstractContextManager[Launcher]:
    """Start the launcher of a host. Host 0 serves the rendezvous."""
    rendezvous = (f"--rdzv-endpoint=localhost:{port}", f"--rdzv-conf=is_host={not number:d},last_call_timeout=2")
    words = (*OPTIONS, *rendezvous, SCRIPT, "--epochs=30", "--batch-size=8", "--checkpoint-steps=5")
    return launched(
        *words,
        TMPDIR=str(bucket),
        TRAINYARD_BUCKET=bucket.as_uri(),
        TRAINYARD_DATA=str(data),
        TRAINYARD_JOB="lightning",
    )


@pytest.mark.long
def test_remaining_hosts_continue_and_accept_a_returning_host(tmp_path: Path, digits: Path) -> None:
    port = free_port()
    with host(0, port, tmp_path, digits) as first, host(1, port, tmp_path, digits) as second:
        # Training saves at every fifth step. The previous checkpoint is complete, but that of this step may not be.
        together = first.wait_for(r"^train epoch=\d+ step=1[05]/\d+ .* rank=\d/2 ")
        second.kill()
        alone = first.wait_for(r"^resume step=\d+ .* rank=0/1 ", after=together)
        first.wait_for(r"^train .* rank=0/1 ", after=alone)
        # Pause the remaining rank, so that it does not finish before the other host joins.
        first.signal(signal.SIGSTOP)
        with host(1, port, tmp_path, digits) as third:
            back = third.wait_for(r"^resume step=\d+ .* rank=\d/2 ")
            third.wait_for(r"^train .* rank=\d/2 ", after=back)
            assert [first.end(), third.end()] == [0, 0], "".join(first.lines[-40:] + third.lines[-40:])
    printed = "".join(first.lines + third.lines)
    last = {words for words in re.findall(r"^test epoch=30 (accuracy=\S+ loss=\S+) rank=\d/2 ", printed, re.M)}
    assert len(last) == 1, "both ranks must report the result over all samples"
    assert float(last.pop().partition(" ")[0].partition("=")[2]) > 80
    assert re.findall(r"^upload .* rank=(\d)/\d ", printed, re.M) == ["0"]
    weights = torch.load(tmp_path / "lightning" / "model.pt")
    digits_network(classes=10, channels=1).load_state_dict(weights)


@pytest.fixture
def script() -> Any:
    """Return the script as a module. The import takes seconds, so only the tests that need it do it."""
    return importlib.import_module("images.lightning.elastic_lightning")


def test_resume_on_another_number_of_ranks_takes_the_rest_of_the_epoch(script: Any, digits: Path) -> None:
    data = Digits(DigitsConfig(data_dir=str(digits), augment=False), torch.device("cpu"))

    def steps(rank: int, world: int) -> Any:
        sampler = EpochSampler(data.num_samples, rank=rank, world=world, batch_size=16, seed=0)
        return script.Steps(data, sampler, lambda: 3)

    first = [step for rank in range(2) for step in islice(steps(rank, 2), 7)]
    rest = []
    for rank in range(3):
        later = steps(rank, 3)
        later.resumed = (3, first[-1].position)
        rest += list(later)
    images = torch.cat([step.images for step in (*first, *rest)])
    whole = torch.cat([step.images for step in steps(0, 1)])
    assert len(images) == len(whole) == data.num_samples
    assert sorted(map(hash_of, images)) == sorted(map(hash_of, whole))
    assert rest[-1].position == data.num_samples


def test_epoch_after_the_resumed_one_starts_at_its_beginning(script: Any, digits: Path) -> None:
    data = Digits(DigitsConfig(data_dir=str(digits)), torch.device("cpu"))
    steps = script.Steps(data, EpochSampler(data.num_samples, rank=0, world=1, batch_size=16, seed=0), lambda: 4)
    steps.resumed = (3, 100)
    assert sum(len(step.labels) for step in steps) == data.num_samples


def hash_of(image: torch.Tensor) -> int:
    return hash(image.numpy().tobytes())


def test_newest_checkpoint_is_none_or_that_of_the_last_step(script: Any, tmp_path: Path) -> None:
    folder = Folder(f"file://{tmp_path}/checkpoints")
    assert script.newest_checkpoint(folder) is None
    files = script.AtomicFiles(folder)
    for step in (10, 20):
        files.save_checkpoint({"step": step}, f"{folder.path}/step={step:09d}.ckpt")
    assert folder.names() == [f"step={step:09d}.ckpt" for step in (10, 20)]
    assert script.newest_checkpoint(folder) == f"{folder.path}/step={20:09d}.ckpt"


def test_killed_rank_restarts_with_the_other_ranks_of_its_host(tmp_path: Path, digits: Path) -> None:
    options = ("--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--max-restarts=1", "--shutdown-timeout=3")
    flags = ("--epochs=4", "--batch-size=8", "--checkpoint-steps=5", f"--bucket={tmp_path.as_uri()}")
    with launched("--nproc-per-node=2", *options, SCRIPT, *flags, TRAINYARD_DATA=str(digits)) as launcher:
        begun = launcher.wait_for(r"^train epoch=1 step=1[05]/\d+ .* rank=1/2 ")
        pids = descendants(launcher.process.pid)
        rank_pids = [pid for pid in pids if SCRIPT in Path(f"/proc/{pid}/cmdline").read_text()]
        os.kill(rank_pids[-1], signal.SIGKILL)
        launcher.wait_for(r"^resume step=\d+ .* rank=\d/2 ", after=begun)
        assert launcher.end() == 0, "".join(launcher.lines[-60:])


@pytest.mark.parametrize(
    ("flag", "message"),
    [("--bucket=", "bucket = '': must be file:///"), ("--epochs=0", "epochs = 0: must be 1")],
    ids=["bucket", "epochs"],
)
def test_invalid_settings_of_the_lightning_script_are_rejected(flag: str, message: str, tmp_path: Path) -> None:
    result = run_python(SCRIPT, f"--bucket={tmp_path.as_uri()}", flag)
    assert result.returncode == BAD_CONFIGURATION, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr
