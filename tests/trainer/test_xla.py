"""The trainer on PyTorch/XLA, in processes with a separate environment: `.venv-xla`, from `make xla`."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.trainer.processes import PROJECT, Ended, free_port

PYTHON = PROJECT / ".venv-xla" / "bin" / "python"
SECONDS = 550
# 400 of the 500 digits are for training: three steps of 128 and less an epoch, every one filled up to the same shape.
FLAGS = ("--epochs=3", "--batch-size=128", "--log-steps=1", "--no-augment", "--seed=3")
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="NOT RUN: no .venv-xla; `make xla` makes it (4 GB)")


def losses(ended: Ended) -> list[str]:
    """Return the printed losses of rank 0, training and test."""
    return [
        event["loss"] for name in ("train", "test") for event in ended.events(name) if event["rank"].startswith("0/")
    ]


def run(
    data: Path, *flags: str, devices: int = 1, words: tuple[str, ...] = ("-m", "trainer"), recipe: str = "digits"
) -> Ended:
    """Train on virtual CPU devices."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")},
        "PJRT_DEVICE": "CPU",
        "CPU_NUM_DEVICES": str(devices),
        "OMP_NUM_THREADS": "1",
        "TRAINYARD_DATA": str(data),
    }
    done = subprocess.run(
        [str(PYTHON), *words, recipe, *flags],
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    return Ended([done.returncode], done.stdout)


@pytest.fixture(scope="module")
def unsharded(digits: Path) -> Ended:
    """Return the run on a single device."""
    return run(digits, *FLAGS)


@pytest.fixture(scope="module")
def sharded(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ended, Path]:
    """Return the run on eight devices with its profile, and its bucket."""
    bucket = tmp_path_factory.mktemp("bucket")
    flags = (f"--bucket=file://{bucket}", "--job=spmd", "--sharding=model", "--profile-steps=5-6")
    return run(digits, *FLAGS, *flags, devices=8), bucket


def test_tensors_have_the_shardings_of_the_meshes(sharded: tuple[Ended, Path]) -> None:
    ended, _ = sharded
    assert ended.codes == [0], ended.output
    found = {event["tensor"]: event["devices"] for event in sharding_lines(ended)}
    everywhere, some = "0,1,2,3,4,5,6,7", "0,1,2,3,4,5,6,7_last_tile_dim_replicate"
    assert found["images"] == f"{{devices=[8,1,1,1]{everywhere}}}"
    assert found["labels"] == f"{{devices=[8]{everywhere}}}"
    assert found["0.weight"] == found["3.weight"] == f"{{devices=[4,1,1,1,2]{some}}}"
    assert found["7.weight"] == f"{{devices=[4,1,2]{some}}}"
    assert found["9.weight"] == f"{{devices=[4,2]{everywhere}}}"


def sharding_lines(ended: Ended) -> list[dict[str, str]]:
    """Return the `sharding` events, whose values hold `=` themselves."""
    line = re.compile(r"^sharding tensor=(?P<tensor>\S+) devices=(?P<devices>\S+) ", re.MULTILINE)
    return [match.groupdict() for match in line.finditer(ended.output)]


def test_spmd_losses_equal_single_device_losses(sharded: tuple[Ended, Path], unsharded: Ended) -> None:
    assert unsharded.codes == [0], unsharded.output
    assert not unsharded.events("sharding")
    pairs = list(zip(losses(sharded[0]), losses(unsharded), strict=True))
    assert len(pairs) == 15
    assert all(math.isclose(float(ours), float(theirs), abs_tol=2e-4) for ours, theirs in pairs), pairs


def test_steps_after_the_third_compile_nothing(sharded: tuple[Ended, Path]) -> None:
    compiled = [int(event["compilations"]) for event in sharded[0].events("train")]
    assert compiled[0] >= 1
    assert len(set(compiled[2:])) == 1, compiled


def test_traces_are_in_the_folder_of_the_process(sharded: tuple[Ended, Path]) -> None:
    _, bucket = sharded
    (trace,) = (bucket / "profiles" / "spmd" / "proc_0").rglob("*.xplane.pb")
    assert b"train_step" in trace.read_bytes()


def test_xla_run_resumes_from_its_checkpoint(digits: Path, tmp_path: Path, unsharded: Ended) -> None:
    flags = (f"--bucket=file://{tmp_path}", "--job=again", "--sharding=model")
    whole = ("--batch-size=128", "--log-steps=1", "--no-augment", "--seed=3")
    # The learning rate follows three epochs in both parts: the first part is preempted.
    first = run_until_saved(digits, *whole, "--epochs=3", *flags)
    assert first.codes == [75], first.output
    second = run(digits, *whole, "--epochs=3", *flags, devices=8)
    assert second.codes == [0], second.output
    assert second.events("resume")
    last, wanted = losses(second)[-1], losses(unsharded)[-1]
    assert math.isclose(float(last), float(wanted), abs_tol=2e-4)


PREEMPTED_PROGRAM = """
import os, signal, sys
from trainer import loop
from trainer.__main__ import main

step = loop.Training.step

def stop(self, batch):
    step(self, batch)
    if self.state.step == 5:
        os.kill(os.getpid(), signal.SIGTERM)

loop.Training.step = stop
code = main()
sys.stdout.flush()
os._exit(code)
"""


def run_until_saved(data: Path, *flags: str) -> Ended:
    """Run on one device and preempt the run in the middle of an epoch, from its own program."""
    return run(data, *flags, words=("-c", PREEMPTED_PROGRAM))


def test_replicas_average_their_gradients(digits: Path, unsharded: Ended) -> None:
    words = ("-m", "trainer.launch", "--nproc-per-node=2", "--master-port", str(free_port()), "-m", "trainer")
    ended = run(digits, "--epochs=3", "--batch-size=64", "--log-steps=1", "--no-augment", "--seed=3", words=words)
    assert ended.codes == [0], ended.output
    tests = [float(event["loss"]) for event in ended.events("test") if event["rank"] == "0/2"]
    wanted = [float(event["loss"]) for event in unsharded.events("test")]
    assert len(tests) == 3
    assert all(math.isclose(ours, theirs, abs_tol=2e-4) for ours, theirs in zip(tests, wanted, strict=True))


def test_replicas_with_batch_statistics_compile_nothing_in_later_epochs(digits: Path, tmp_path: Path) -> None:
    words = ("-m", "trainer.launch", "--nproc-per-node=2", "--master-port", str(free_port()), "-m", "trainer")
    images = ("--arch=timm/test_resnet", "--image-size=32", "--batch-size=4", "--steps-per-epoch=3", "--test-steps=1")
    flags = (*images, "--epochs=3", "--log-steps=1", f"--bucket=file://{tmp_path}")
    ended = run(digits, *flags, words=words, recipe="imagenet")
    assert ended.codes == [0], ended.output
    compiled = {(event["rank"], event["epoch"]): event["compilations"] for event in ended.events("train")}
    for rank in ("0/2", "1/2"):
        assert len({compiled[rank, epoch] for epoch in "123"}) == 1, compiled
    tests = ended.events("test")
    assert len({(event["epoch"], event["loss"]) for event in tests}) == 3, "both ranks have the same statistics"


def test_xla_device_without_pytorch_xla_is_rejected(digits: Path) -> None:
    code = "import sys; sys.modules['torch_xla'] = None; import trainer.__main__ as m; sys.exit(m.main())"
    ended = run(digits, "--device=xla", words=("-c", code))
    assert ended.codes == [78]
    assert "device is 'xla'" in ended.output
    assert "Dockerfile.xla" in ended.output


def test_every_event_is_a_line_of_json(sharded: tuple[Ended, Path]) -> None:
    lines = (sharded[1] / "spmd" / "metrics" / "rank-0.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in lines]
    assert [event["compilations"] for event in events if event["event"] == "train"]
