"""The Lightning script under real launchers: hosts fail and return, and an epoch takes each sample once."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator
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
from trainer.exit_codes import BAD_CONFIGURATION, DONE
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
        # Training saves every fifth step. The newest checkpoint may be incomplete, but the previous one is complete.
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
    """Return the script as a module. The import takes seconds, so only tests that need the module import it."""
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


def test_epoch_after_the_resumed_epoch_starts_at_its_beginning(script: Any, digits: Path) -> None:
    data = Digits(DigitsConfig(data_dir=str(digits)), torch.device("cpu"))
    steps = script.Steps(data, EpochSampler(data.num_samples, rank=0, world=1, batch_size=16, seed=0), lambda: 4)
    steps.resumed = (3, 100)
    assert sum(len(step.labels) for step in steps) == data.num_samples


def hash_of(image: torch.Tensor) -> int:
    return hash(image.numpy().tobytes())


def test_newest_checkpoint_is_none_or_the_checkpoint_of_the_last_step(script: Any, tmp_path: Path) -> None:
    folder = Folder(f"file://{tmp_path}/checkpoints")
    assert script.newest_checkpoint(folder) is None
    files = script.AtomicFiles(folder)
    for step in (10, 20):
        files.save_checkpoint({"step": step}, f"{folder.path}/step={step:09d}.ckpt")
    assert folder.names() == [f"step={step:09d}.ckpt" for step in (10, 20)]
    assert script.newest_checkpoint(folder) == f"{folder.path}/step={20:09d}.ckpt"


@pytest.fixture
def run_script(
    script: Any, digits: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[[Path, int], list[str]]]:
    """Yield a function that trains in this process, on one thread, with a bucket and a number of epochs.

    The function returns the printed lines of events, each up to its accuracy or position.
    """

    def run(bucket: Path, epochs: int) -> list[str]:
        flags = (f"--bucket={bucket.as_uri()}", f"--epochs={epochs}", "--batch-size=100", "--checkpoint-steps=1")
        monkeypatch.setenv("TRAINYARD_DATA", str(digits))
        monkeypatch.setattr(sys, "argv", [SCRIPT, *flags, "--log-steps=1"])
        assert script.main() == DONE
        return re.findall(r"^((?:train|test|resume|done) .*?(?:accuracy|position)=\S+)", capsys.readouterr().out, re.M)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield run
    torch.set_num_threads(threads)


@pytest.mark.filterwarnings("default")  # Lightning itself emits warnings
def test_runs_that_resume_at_the_end_of_an_epoch_train_each_epoch_once(
    run_script: Callable[[Path, int], list[str]], tmp_path: Path
) -> None:
    parts = [line for epochs in (1, 2, 3) for line in run_script(tmp_path / "parts", epochs)]
    resumed = [line for line in parts if line.startswith("resume")]
    assert resumed == ["resume step=4 epoch=2 position=0", "resume step=8 epoch=3 position=0"]
    whole = run_script(tmp_path / "whole", 3)
    assert [line for line in parts if line.startswith(("train", "test"))] == whole[:-1]
    assert sum(line.startswith("train epoch=2 ") for line in parts) == 4


@pytest.mark.filterwarnings("default")  # Lightning itself emits warnings
def test_run_that_resumes_after_its_last_step_repeats_only_the_evaluation(
    run_script: Callable[[Path, int], list[str]], tmp_path: Path
) -> None:
    before = run_script(tmp_path, 1)
    assert [line.split()[0] for line in before[-2:]] == ["test", "done"]
    assert run_script(tmp_path, 1) == before[-2:]


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
    [("--bucket=", "bucket = '': must be file:///"), ("--epochs=0", "epochs = 0: must be from 1")],
    ids=["bucket", "epochs"],
)
def test_invalid_settings_of_the_lightning_script_are_rejected(flag: str, message: str, tmp_path: Path) -> None:
    result = run_python(SCRIPT, f"--bucket={tmp_path.as_uri()}", flag)
    assert result.returncode == BAD_CONFIGURATION, result.stderr
    assert message in result.stderr
    assert "Traceback" not in result.stderr
