"""Trainers of other projects under this project's launcher, with two ranks on CPUs."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.trainer.processes import PROJECT, Launcher, descendants, launched
from workloads.spec import example_jobs

pytestmark = pytest.mark.timeout(900)

TORCHTITAN = ("-m", "torchtitan.train", "--module=llama3", "--config=llama3_debugmodel")
LOSS = re.compile(r"\{'loss': '([^']+)'.*'epoch': '([^']+)'")
"""Losses that transformers.Trainer prints."""


@contextmanager
def two_ranks(folder: Path, *words: str) -> Iterator[Launcher]:
    """Write texts into a folder, and start two ranks there. The ranks may restart once."""
    texts = folder / "sotu" / "train"
    texts.mkdir(parents=True)
    (texts / "a.txt").write_text("The state of the union is strong. " * 4000, encoding="utf-8")
    options = ("--standalone", "--nproc-per-node=2", "--max-restarts=1")
    with launched(*options, *words, cwd=folder, HF_HOME=str(folder)) as launcher:
        yield launcher


def example_command(example: str, folder: Path, *words: str) -> list[str]:
    """Return the script and arguments of an example, followed by `words`. Its output goes to `folder`."""
    (job,) = example_jobs(example)
    arguments = [f"--output_dir={folder}" if each.startswith("--output_dir=") else each for each in job["args"]]
    return [str(PROJECT / job["script"]), *arguments, *words]


def rank_pid(launcher_pid: int, rank: int) -> int:
    """Return the process id of a rank that this launcher started."""
    variable = f"RANK={rank}".encode()
    found = [
        pid for pid in descendants(launcher_pid) if variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    ]
    return found[0]


@pytest.mark.long
def test_hf_trainer_resumes_after_a_killed_rank_with_the_same_losses(tmp_path: Path) -> None:
    words = example_command("hf-trainer", tmp_path / "run", "--max_steps=16", "--save_steps=4", "--logging_steps=1")
    with two_ranks(tmp_path, *words) as launcher:
        launcher.wait_for(LOSS.pattern)
        while not (tmp_path / "run" / "checkpoint-4" / "trainer_state.json").exists():
            launcher.wait_for(LOSS.pattern, after=len(launcher.lines))
        launcher.wait_for(LOSS.pattern, after=len(launcher.lines))
        os.kill(rank_pid(launcher.process.pid, 1), signal.SIGKILL)
        text = launcher.all()
        assert launcher.end() == 0, text[-3000:]
    resumed = re.search(r"^resume from \S+/checkpoint-(\d+)$", text, re.M)
    assert resumed, text[-3000:]
    before, after = text[: resumed.start()], text[resumed.start() :]
    losses = {epoch: loss for loss, epoch in LOSS.findall(before)}
    repeated = {epoch: loss for loss, epoch in LOSS.findall(after) if epoch in losses}
    assert repeated == {epoch: losses[epoch] for epoch in repeated} != {}
    state = tmp_path / "run" / "checkpoint-16" / "trainer_state.json"
    assert json.loads(state.read_text(encoding="utf-8"))["global_step"] == 16
    assert (tmp_path / "run" / "model.safetensors").is_file()


# The first run of `deepspeed` on a machine compiles DeepSpeed's operators.
@pytest.mark.parametrize("example", [pytest.param("deepspeed", marks=pytest.mark.long), "trl-sft"])
def test_framework_trains_on_two_ranks_and_saves_the_model(tmp_path: Path, example: str) -> None:
    words = example_command(example, tmp_path / "run", "--max_steps=6", "--save_steps=3", "--logging_steps=1")
    with two_ranks(tmp_path, *words) as launcher:
        text = launcher.all()
        assert launcher.end() == 0, text[-3000:]
    losses = [float(loss) for loss, _ in LOSS.findall(text)]
    assert len(losses) == 6, text[-3000:]
    assert losses[-1] < losses[0]
    assert (tmp_path / "run" / "model.safetensors").is_file()
    assert len(list((tmp_path / "run" / "checkpoint-6").glob("rng_state_*.pth"))) == 2


def test_torchtitan_reads_its_configuration_and_requires_a_gpu(tmp_path: Path) -> None:
    with two_ranks(tmp_path, *TORCHTITAN, "--training.steps=2") as launcher:
        text = launcher.all()
        assert launcher.end() != 0
    assert "torchtitan version" in text
    assert "Found no NVIDIA driver on your system" in text
