"""The trainer on PyTorch/XLA. Its processes use a separate environment: `.venv-xla`, from `make xla`."""

from __future__ import annotations

import math
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bench.measure import free_port
from tests.trainer.language import GLOBAL_BATCH, MODEL, write_texts
from tests.trainer.processes import PROJECT, XLA_PYTHON, RunResult, metrics, needs_xla
from tests.trainer.processes import run as run_on_cpu
from trainer.exit_codes import BAD_CONFIGURATION, DONE, PREEMPTED

WAIT_LIMIT_SECONDS = 550
# An epoch has 400 training digits in four steps of 100. Each step is padded to the batch size.
FLAGS = ("--epochs=3", "--batch-size=128", "--log-steps=1", "--no-augment", "--seed=3")
pytestmark = needs_xla


def losses(result: RunResult) -> list[str]:
    """Return the losses that rank 0 printed: training losses, then test losses."""
    return [
        event["loss"] for name in ("train", "test") for event in result.events(name) if event["rank"].startswith("0/")
    ]


def run(
    data: Path,
    *flags: str,
    devices: int = 1,
    words: tuple[str, ...] = ("-m", "trainer"),
    recipe: str = "digits",
    code: int = DONE,
) -> RunResult:
    """Train on virtual CPU devices. `words` starts the trainer. Assert the exit code."""
    process = start([*words, recipe, *flags], devices=devices, TRAINYARD_DATA=str(data))
    output, _ = process.communicate(timeout=WAIT_LIMIT_SECONDS)
    assert process.returncode == code, output
    return RunResult([code], output)


def two_processes() -> tuple[str, ...]:
    """Return the arguments of Python that start the trainer in two processes."""
    return ("-m", "trainer.launch", "--nproc-per-node=2", "--master-port", str(free_port()), "-m", "trainer")


def start(words: list[str], *, devices: int, **variables: str) -> subprocess.Popen[str]:
    """Start the Python of PyTorch/XLA's environment with this number of virtual CPU devices."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("TRAINYARD_")},
        "PJRT_DEVICE": "CPU",
        "CPU_NUM_DEVICES": str(devices),
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    return subprocess.Popen(
        [str(XLA_PYTHON), *words],
        cwd=PROJECT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def unsharded(digits: Path) -> RunResult:
    """Return the result of a run on one device."""
    return run(digits, *FLAGS)


@pytest.fixture(scope="module")
def sharded(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, Path]:
    """Return the result and the bucket of a run on eight devices with sharded weights and a profile."""
    bucket = tmp_path_factory.mktemp("bucket")
    flags = (f"--bucket=file://{bucket}", "--job=spmd", "--sharding=model", "--profile-steps=5-6")
    return run(digits, *FLAGS, *flags, devices=8), bucket


def test_tensors_have_the_shardings_of_the_meshes(sharded: tuple[RunResult, Path]) -> None:
    result, _ = sharded
    found = {event["tensor"]: event["devices"] for event in sharding_lines(result)}
    all_devices, with_copies = "0,1,2,3,4,5,6,7", "0,1,2,3,4,5,6,7_last_tile_dim_replicate"
    assert found["images"] == f"{{devices=[8,1,1,1]{all_devices}}}"
    assert found["labels"] == f"{{devices=[8]{all_devices}}}"
    assert found["0.weight"] == found["3.weight"] == f"{{devices=[4,1,1,1,2]{with_copies}}}"
    assert found["7.weight"] == f"{{devices=[4,1,2]{with_copies}}}"
    assert found["9.weight"] == f"{{devices=[4,2]{all_devices}}}"


def sharding_lines(result: RunResult) -> list[dict[str, str]]:
    """Return the `sharding` events. Their values contain `=`, so `RunResult.events` cannot read them."""
    line = re.compile(r"^sharding tensor=(?P<tensor>\S+) devices=(?P<devices>\S+) ", re.MULTILINE)
    return [match.groupdict() for match in line.finditer(result.output)]


def test_spmd_losses_are_near_single_device_losses(sharded: tuple[RunResult, Path], unsharded: RunResult) -> None:
    assert not unsharded.events("sharding")
    pairs = list(zip(losses(sharded[0]), losses(unsharded), strict=True))
    assert len(pairs) == 15
    assert all(math.isclose(float(loss), float(other), abs_tol=2e-4) for loss, other in pairs), pairs


def test_no_step_after_step_2_compiles(sharded: tuple[RunResult, Path]) -> None:
    compiled = [int(event["compilations"]) for event in sharded[0].events("train")]
    assert compiled[0] >= 1
    assert len(set(compiled[1:])) == 1, compiled


def test_traces_are_in_the_folder_of_the_process(sharded: tuple[RunResult, Path]) -> None:
    _, bucket = sharded
    (trace,) = (bucket / "profiles" / "spmd" / "proc_0").rglob("*.xplane.pb")
    assert b"train_step" in trace.read_bytes()


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
"""Program of a run that receives SIGTERM at step 5."""


def test_preempted_xla_run_resumes_to_the_loss_of_an_undisturbed_run(
    digits: Path, tmp_path: Path, unsharded: RunResult
) -> None:
    flags = (f"--bucket=file://{tmp_path}", "--job=again", "--sharding=model")
    # Preempt the run instead of giving it fewer epochs, because the learning rate depends on the number of epochs.
    run(digits, *FLAGS, *flags, words=("-c", PREEMPTED_PROGRAM), code=PREEMPTED)
    resumed = run(digits, *FLAGS, *flags, devices=8)
    assert resumed.events("resume")
    last, expected = losses(resumed)[-1], losses(unsharded)[-1]
    assert math.isclose(float(last), float(expected), abs_tol=2e-4)


RESUMED_FEED_PROGRAM = """
from types import SimpleNamespace

from trainer.data.datasets import Batch
from trainer.data.sampler import EpochSampler
from trainer.runtime.xla import PrefetchedBatches

runtime = SimpleNamespace(
    round_up_batch=lambda size: size, scale=float, to_device=lambda inputs, labels: (inputs, labels)
)
data = SimpleNamespace(
    classes=2,
    sample_shape=(1,),
    num_samples=24,
    num_tests=1,
    follow=lambda sampler: None,
    batch=lambda share, world: Batch(inputs=share.indices.view(-1, 1).float(), labels=share.indices, scale=1.0),
)
batches = PrefetchedBatches(data, runtime, batch_size=4, accumulate=1)
first, resumed = (EpochSampler(24, rank=0, world=1, batch_size=4, seed=seed) for seed in (0, 1))
batches.follow(resumed)
first.next()
resumed.load_state(first.state())
for _ in range(2):
    while resumed.steps_left:
        share = resumed.next()
        print("wanted", share.indices.tolist(), "got", batches.batch(share, world=1).labels.tolist())
    resumed.next_epoch()
"""
"""Program that resumes with another seed, and prints the wanted samples and those that it gets."""


def test_resume_with_another_seed_keeps_the_sample_order_of_the_checkpoint(digits: Path) -> None:
    result = run(digits, words=("-c", RESUMED_FEED_PROGRAM))
    found = re.findall(r"wanted (\[.*\]) got (\[.*\])", result.output)
    assert len(found) == 5 + 6, result.output
    assert all(wanted == got for wanted, got in found), found


def test_replicas_average_their_gradients(digits: Path, unsharded: RunResult) -> None:
    result = run(digits, *FLAGS, "--batch-size=64", words=two_processes())
    found = [float(event["loss"]) for event in result.events("test") if event["rank"] == "0/2"]
    expected = [float(event["loss"]) for event in unsharded.events("test")]
    assert len(found) == 3
    assert all(math.isclose(loss, other, abs_tol=2e-4) for loss, other in zip(found, expected, strict=True))


def test_replicas_with_batch_statistics_compile_nothing_in_later_epochs(digits: Path, tmp_path: Path) -> None:
    small = ("--arch=timm/test_resnet", "--image-size=32", "--batch-size=4", "--steps-per-epoch=3", "--test-steps=1")
    flags = (*small, "--epochs=3", "--log-steps=1", f"--bucket=file://{tmp_path}")
    result = run(digits, *flags, words=two_processes(), recipe="imagenet")
    compiled = {(event["rank"], event["epoch"]): event["compilations"] for event in result.events("train")}
    for rank in ("0/2", "1/2"):
        assert len({compiled[rank, epoch] for epoch in "123"}) == 1, compiled
    tests = result.events("test")
    assert len({(event["epoch"], event["loss"]) for event in tests}) == 3, "both ranks must have the same statistics"


def test_xla_device_without_pytorch_xla_is_rejected(digits: Path) -> None:
    program = "import sys; sys.modules['torch_xla'] = None; import trainer.__main__ as m; sys.exit(m.main())"
    result = run(digits, "--device=xla", words=("-c", program), code=BAD_CONFIGURATION)
    assert "device = 'xla'" in result.output
    assert "Dockerfile.xla" in result.output


LANGUAGE_STEPS, SAVED_STEP = 12, 5
LANGUAGE = (*MODEL, "--log-steps=1", f"--batch-size={GLOBAL_BATCH}", "--seed=3", f"--checkpoint-steps={SAVED_STEP}")
TOLERANCE = 1e-5
STATE_PROGRAM = """
import os, sys
import torch_xla
from trainer import loop
from trainer.__main__ import main

step = loop.Training.step

def show(self, batch):
    step(self, batch)
    if self.state.step == 3:
        for name, weight in self.state.model.named_parameters():
            for key, tensor in self.state.optimizer.state[weight].items():
                print("state", name, key, torch_xla._XLAC._get_xla_sharding_spec(tensor).replace(" ", "_"))

loop.Training.step = show
code = main()
sys.stdout.flush()
os._exit(code)
"""


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_texts(tmp_path_factory.mktemp("texts"), steps=LANGUAGE_STEPS)


@pytest.fixture(scope="module")
def on_cpu(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, Path]:
    """Return the result and the bucket of a run of one CPU process, without PyTorch/XLA."""
    bucket = tmp_path_factory.mktemp("cpu")
    flags = ("--device=cpu", f"--bucket=file://{bucket}", "--sample-tokens=3")
    result = run_on_cpu(*LANGUAGE, *flags, recipe="language", data=texts)
    return result, bucket


@pytest.fixture(scope="module")
def on_devices(texts: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunResult, Path]:
    """Return the result and the bucket of a run with two copies of the model, each sharded across four devices."""
    bucket = tmp_path_factory.mktemp("devices")
    flags = (f"--bucket=file://{bucket}", "--sample-tokens=3", "--parallelism=data=2,shard=4")
    result = run(texts, *LANGUAGE, *flags, devices=8, words=("-c", STATE_PROGRAM), recipe="language")
    return result, bucket


def curve(bucket: Path, name: str = "loss") -> dict[tuple[str, int], float]:
    """Return the values of a measure, by the name and step of their events."""
    return {(event["event"], event["global_step"]): event[name] for event in metrics(bucket) if name in event}


def copy_until(bucket: Path, step: int, to: Path) -> None:
    """Copy the checkpoints of a bucket up to a step."""
    shutil.copytree(bucket / "checkpoints", to / "checkpoints")
    for folder in (to / "checkpoints" / "training").glob("step-*"):
        if int(folder.name.removeprefix("step-")) > step:
            shutil.rmtree(folder)


def test_sharded_language_model_has_losses_norms_and_sample_of_one_process(
    on_devices: tuple[RunResult, Path], on_cpu: tuple[RunResult, Path]
) -> None:
    (result, bucket), (expected, cpu_bucket) = on_devices, on_cpu
    assert len(curve(bucket)) == LANGUAGE_STEPS + 1
    assert curve(bucket) == pytest.approx(curve(cpu_bucket), rel=TOLERANCE)
    assert curve(bucket, "gradient_norm") == pytest.approx(curve(cpu_bucket, "gradient_norm"), rel=TOLERANCE)
    assert [event["text"] for event in result.events("sample")] == [
        event["text"] for event in expected.events("sample")
    ]


def test_sharded_language_model_compiles_two_graphs(on_devices: tuple[RunResult, Path]) -> None:
    assert [int(event["compilations"]) for event in on_devices[0].events("train")] == [1, *[2] * (LANGUAGE_STEPS - 1)]


def test_weights_and_optimizer_state_of_language_model_are_sharded(on_devices: tuple[RunResult, Path]) -> None:
    result, _ = on_devices
    found = {event["tensor"]: event["devices"] for event in sharding_lines(result)}
    assert found["tokens"] == found["labels"] == "{devices=[8,1]0,1,2,3,4,5,6,7}"
    parts = "0,4,1,5,2,6,3,7_last_tile_dim_replicate}"
    assert found["embedding.weight"] == f"{{devices=[1,4,2]{parts}"
    assert found["blocks.1.feed_forward.down.weight"] == f"{{devices=[4,1,2]{parts}"
    assert found["norm.weight"] == f"{{devices=[4,2]{parts}"
    states = re.findall(r"^state (\S+) (exp_avg\w*) (\S+)$", result.output, re.MULTILINE)
    assert len(states) == 2 * (len(found) - 2)
    assert [state for state in states if state[2] != found[state[0]]] == []


def test_xla_run_with_shards_resumes_with_bitwise_equal_losses(
    on_devices: tuple[RunResult, Path], texts: Path, tmp_path: Path
) -> None:
    _, bucket = on_devices
    copy_until(bucket, SAVED_STEP, tmp_path)
    flags = (f"--bucket=file://{tmp_path}", "--sample-tokens=0", "--parallelism=data=2,shard=4")
    result = run(texts, *LANGUAGE, *flags, devices=8, recipe="language")
    found = curve(tmp_path)
    assert found == {key: loss for key, loss in curve(bucket).items() if key[1] > SAVED_STEP}
    assert int(result.events("train")[-1]["compilations"]) == 2


def test_checkpoint_of_xla_resumes_on_cpu(on_devices: tuple[RunResult, Path], texts: Path, tmp_path: Path) -> None:
    _, bucket = on_devices
    copy_until(bucket, SAVED_STEP, tmp_path)
    flags = ("--device=cpu", "--sample-tokens=0", f"--bucket=file://{tmp_path}")
    run_on_cpu(*LANGUAGE, *flags, recipe="language", data=texts)
    expected = {key: loss for key, loss in curve(bucket).items() if key[1] > SAVED_STEP}
    assert curve(tmp_path) == pytest.approx(expected, rel=TOLERANCE)


def test_checkpoint_of_cpu_resumes_on_xla_with_accumulation_and_activation_checkpointing(
    on_cpu: tuple[RunResult, Path], texts: Path, tmp_path: Path
) -> None:
    _, bucket = on_cpu
    copy_until(bucket, SAVED_STEP, tmp_path)
    flags = ("--parallelism=shard=4", "--accumulate=2", "--activation-checkpointing=full", "--sample-tokens=0")
    run(texts, *LANGUAGE, *flags, f"--bucket=file://{tmp_path}", devices=4, recipe="language")
    expected = {key: loss for key, loss in curve(bucket).items() if key[1] > SAVED_STEP}
    assert curve(tmp_path) == pytest.approx(expected, rel=TOLERANCE)


def test_language_replicas_have_the_test_losses_of_one_process(
    on_cpu: tuple[RunResult, Path], texts: Path, tmp_path: Path
) -> None:
    flags = (f"--batch-size={GLOBAL_BATCH // 2}", "--sample-tokens=0", f"--bucket=file://{tmp_path}")
    run(texts, *LANGUAGE, *flags, words=two_processes(), recipe="language")
    tests = {key: loss for key, loss in curve(tmp_path).items() if key[0] == "test"}
    assert tests == pytest.approx({key: curve(on_cpu[1])[key] for key in tests}, rel=TOLERANCE)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--parallelism=shard=2,tensor=2", "must be sizes of data and shard, without tensor, on XLA"),
        ("--parallelism=shard=4 --width=66 --heads=3 --kv-heads=1", "must be a divisor of the width, 66"),
        ("--activation-checkpointing=selective", "must be none or full on XLA"),
    ],
)
def test_settings_without_support_on_xla_are_rejected(flags: str, message: str, texts: Path) -> None:
    result = run(texts, *LANGUAGE, *flags.split(), devices=4, recipe="language", code=BAD_CONFIGURATION)
    assert message in result.output


def test_hosts_save_and_read_the_parts_of_their_devices(tmp_path: Path) -> None:
    address = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    words = ["-m", "tests.trainer.xla_parts", f"file://{tmp_path}"]
    hosts = [start(words, devices=8, RANK=str(rank), **address) for rank in range(2)]
    outputs = [host.communicate(timeout=WAIT_LIMIT_SECONDS)[0] for host in hosts]
    for rank, (host, output) in enumerate(zip(hosts, outputs, strict=True)):
        assert host.returncode == 0, output
        for text in ("model.down (32, 96)", "model.up (96, 32)", "model.norm (32,)", "model.adapter (4, 96)"):
            assert f"part {rank} {text}" in output
    sizes = [path.stat().st_size for path in (tmp_path / "step-000000001").glob("*.tensors")]
    assert len(sizes) == 2
    assert min(sizes) > 0.9 * max(sizes)
