"""The trainer on a GPU. Losses are close to those on a CPU, and steps do not wait for the device."""

from __future__ import annotations

import gzip
import os
import signal
from pathlib import Path

import pytest

from images.trainer.made_images import imagenet
from tests.conftest import VISIBLE_GPUS
from tests.trainer.language import MODEL, write_texts
from tests.trainer.processes import RunResult, run, started
from trainer.exit_codes import BAD_CONFIGURATION, PREEMPTED
from trainer.gpu import DRIVER_FILE, HIDING_VALUES

DEVICE = "cuda"
GPUS = len(list(Path("/dev").glob("nvidia[0-9]*")))
pytestmark = pytest.mark.skipif(
    not DRIVER_FILE.exists() or VISIBLE_GPUS in HIDING_VALUES,
    reason="no GPU here: the trainer on CUDA is NOT RUN",
)
IMAGENET = ("--arch=resnet18", "--image-size=64", "--num-classes=4", "--batch-size=8")


@pytest.fixture(autouse=True)
def visible_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the trainer's processes see the GPUs, which tests/conftest.py has hidden."""
    if VISIBLE_GPUS is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", VISIBLE_GPUS)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of images of four classes."""
    folder = tmp_path_factory.mktemp("images")
    imagenet(folder, classes=4, train=16, tests=4, side=80)
    return folder


def losses(result: RunResult) -> list[float]:
    return [float(event["loss"]) for event in result.events("train")]


def test_gpu_losses_are_within_5_percent_of_cpu_losses(digits: Path) -> None:
    flags = ("--epochs=1", "--log-steps=1", "--warmup=0")
    on_gpu = run(*flags, f"--device={DEVICE}", recipe="digits", data=digits)
    on_cpu = run(*flags, "--device=cpu", recipe="digits", data=digits)
    assert {event["device"] for event in on_gpu.events("start")} == {DEVICE}
    assert losses(on_gpu) == pytest.approx(losses(on_cpu), rel=0.05)
    found, expected = (float(result.events("test")[0]["loss"]) for result in (on_gpu, on_cpu))
    assert found == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("flags", ["--amp", "--compile", "--accumulate=4", "--amp --optimizer=sgd --lr=0.05"])
def test_gpu_run_learns_with_each_option(flags: str, digits: Path) -> None:
    result = run("--epochs=10", *flags.split(), f"--device={DEVICE}", recipe="digits", data=digits)
    assert losses(result)[-1] < losses(result)[0] / 2
    assert float(result.events("done")[0]["test_accuracy"]) > 80


@pytest.mark.parametrize("flags", [(), ("--amp",), ("--accumulate=2",)], ids=["32 bits", "16 bits", "accumulate"])
@pytest.mark.parametrize("recipe", ["digits", "generated", "files"])
def test_gpu_steps_do_not_synchronize_and_get_the_same_images_as_on_cpu(
    recipe: str, flags: tuple[str, ...], digits: Path, images: Path, tmp_path: Path
) -> None:
    words = {
        "digits": ("digits",),
        "generated": ("imagenet", *IMAGENET),
        "files": ("imagenet", *IMAGENET, "--no-fake-data", f"--data-dir={images}", f"--cache-dir={tmp_path}"),
    }[recipe]
    program = "tests.trainer.steps_on_device"
    on_gpu, on_cpu = (
        run(*words[1:], *flags, f"--device={device}", recipe=words[0], data=digits, program=program)
        for device in (DEVICE, "cpu")
    )
    if recipe == "generated":
        return  # each device generates its own images
    sums = [[float(event["images"]) for event in result.events("step")] for result in (on_gpu, on_cpu)]
    assert sums[0] == pytest.approx(sums[1], rel=1e-3, abs=1)


@pytest.mark.parametrize("compile_flag", ["", "--compile"])
def test_float8_has_losses_close_to_16_bits_or_is_rejected(compile_flag: str, tmp_path: Path) -> None:
    data = write_texts(tmp_path, steps=20)
    flags = (*MODEL, "--amp", "--sample-tokens=8", "--log-steps=1", f"--device={DEVICE}", *compile_flag.split())
    plain = run(*flags, recipe="language", data=data)
    for scaling in ("tensorwise", "rowwise"):
        result = run(*flags, f"--float8={scaling}", recipe="language", data=data, code=None)
        if result.codes == [BAD_CONFIGURATION]:
            assert "compute capability 8.9 or higher" in result.output
        else:
            assert losses(result) == pytest.approx(losses(plain), rel=0.02)


@pytest.mark.skipif(GPUS < 2, reason="fewer than two GPUs here: the exchange over NCCL is NOT RUN")
def test_two_gpus_have_nearly_the_test_loss_of_one_gpu(digits: Path) -> None:
    one = run("--epochs=2", f"--device={DEVICE}", recipe="digits", data=digits)
    two = run("--epochs=2", "--batch-size=32", f"--device={DEVICE}", processes=2, recipe="digits", data=digits)
    loss_of_two, loss_of_one = (float(result.events("test")[-1]["loss"]) for result in (two, one))
    assert loss_of_two == pytest.approx(loss_of_one, rel=0.05)


def test_run_resumes_on_another_device(digits: Path, tmp_path: Path) -> None:
    bucket = f"--bucket=file://{tmp_path}"
    for epochs, device in enumerate((DEVICE, "cpu", DEVICE), start=1):
        result = run(f"--epochs={epochs}", bucket, f"--device={device}", "--amp", recipe="digits", data=digits)
        assert not result.events("checkpoint_skipped"), result.output
        assert len(result.events("resume")) == (epochs > 1), result.output
    assert float(result.events("test")[-1]["accuracy"]) > 20


def test_preempted_run_on_gpu_saves_its_step(digits: Path, tmp_path: Path) -> None:
    flags = ("--epochs=100000", "--log-steps=1", f"--bucket=file://{tmp_path}", f"--device={DEVICE}")
    with started(*flags, hosts=1, processes=1, recipe="digits", data=digits) as running:
        running.wait_for("train epoch=2")
        os.kill(running.rank_pid(0), signal.SIGTERM)
        result = running.end(PREEMPTED)
    step = result.output.partition("preempted at step ")[2].split()[0]
    assert [event["step"] for event in result.events("checkpoint")][-1] == step


def test_profile_contains_gpu_kernels(digits: Path, tmp_path: Path) -> None:
    flags = ("--epochs=1", "--profile-steps=3-4", f"--bucket=file://{tmp_path}", f"--device={DEVICE}")
    run(*flags, recipe="digits", data=digits)
    (trace,) = (tmp_path / "profiles" / "training" / "rank-0").iterdir()
    assert b'"cat": "kernel"' in gzip.decompress(trace.read_bytes())


def test_batch_beyond_gpu_memory_is_bad_configuration(digits: Path) -> None:
    result = run("--batch-size=5000000", f"--device={DEVICE}", recipe="imagenet", data=digits, code=BAD_CONFIGURATION)
    assert "flags.batch_size = 5000000, flags.accumulate = 1: the accelerator ran out of memory (" in result.output


def test_more_ranks_than_gpus_are_rejected(digits: Path) -> None:
    result = run("--epochs=1", f"--device={DEVICE}", processes=17, recipe="digits", data=digits, code=BAD_CONFIGURATION)
    assert "processes_per_host = 17: must be at most " in result.output
