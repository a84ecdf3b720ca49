"""`make bench-trainer`: check the trainer's speed claims. Fail if a goal is missed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from unittest import mock

import torch

from bench.harness import run_bench
from bench.measure import (
    PROJECT,
    WITHOUT_GPU,
    BenchError,
    Measure,
    Result,
    alternate,
    compare,
    ranks,
    time_rounds,
    two_sides,
)
from bench.reference_loops import first_gpu
from bench.restarts import restart_on_one_host
from bench.trainer_rank import BUCKET, GPU_VARIANTS, LANGUAGE_STEPS, variant_config, write_digits
from infra.local.trainer_image import digits_folder
from setup.datasets import has_digits
from simulation.object_store import SETTINGS_KEY, AmazonStore, running
from trainer.language.decoder import FLOAT8_CAPABILITY
from trainer.step_log import peak_flops

CORES = 2
"""Number of CPU threads of the measurements that use the whole machine."""
PAIRS = 7
"""Number of pairs of most measurements. A pair is one run of each of the two sides."""
FINE_PAIRS = 151
"""Number of pairs of measurements whose goal allows only a few percent."""
LANGUAGE_PAIRS = 61
"""Number of pairs of the measurements of a language model."""
ROUNDS = 31
"""Number of rounds of `references`."""
SAVE_ROUNDS = 15
"""Number of rounds of `save-steps`."""
PROMISED_ACCURACY = 98.5
"""Promised accuracy of the digits recipe on the held-out digits, in percent."""
PROMISED_SECONDS = 120.0
"""Promised duration of the digits recipe on two cores, in seconds."""
UNMEASURED_GOALS = {
    "data wait of a cloud's own bucket": "needs a cloud: data-wait-bucket uses an S3 server on this machine",
}
"""Goal that this bench does not check -> the reason."""
UNMEASURED_WITHOUT_GPU = dict.fromkeys(
    (
        "our loop against a plain loop, and against torchvision's, pytorch/examples' and timm's, on a GPU",
        "H200, ResNet-50: images/s, floor 4,000, goal 5,800",
        "language model of 1B: tokens/s and MFU against torchtitan's model, eager, compiled and with float8",
    ),
    "no GPU here",
)
"""Further goal that this bench does not check without a GPU -> the reason."""
GPU_ROUNDS = 15
GPU_GOALS = {
    ("gpu-loop-floor", "best", "plain"): 1 / 0.98,
    ("gpu-torchvision-loop", "ours", "torchvision"): 1.0,
    ("gpu-imagenet-loop", "ours", "imagenet"): 1.0,
    ("gpu-best-settings", "best", "torchvision"): 0.5,
    ("gpu-timm", "best", "timm"): 1.0,
}
"""Name of a measurement and its two sides -> maximum ratio of their times."""
GPU_RATES = {"NVIDIA H200": (4000.0, 5800.0)}
"""Name of a GPU -> floor, which a run must reach, and goal, in images per second of ResNet-50."""
XLA_PYTHON = PROJECT / ".venv-xla" / "bin" / "python"
STEADY_STEP = 3
"""Step after which PyTorch/XLA must compile no more graphs."""
XLA_SAMPLES = 2000
COMPILATIONS = re.compile(r"^train .*\bcompilations=(\d+)", re.MULTILINE)
TrainerMeasure = Callable[[], Measure | Result | tuple[Measure | Result, ...]]


def references() -> tuple[Measure, ...]:
    """Measure Trainyard's loop against the loops of two reference scripts, which run in another process."""
    goals = {
        ("torchvision-loop", "ours", "torchvision"): 1.0,
        ("imagenet-loop", "ours", "imagenet"): 1.0,
        ("best-settings", "best", "torchvision"): 1 / 1.1,
    }
    with (
        ranks("references", threads=CORES) as ours,
        ranks("references", threads=CORES, program="bench.reference_loops") as theirs,
    ):
        sides = {"ours": ours, "torchvision": theirs, "best": ours, "imagenet": theirs}
        return compare(time_rounds("references", sides, ROUNDS), goals)


def wait_share(name: str, kind: str, goal: float) -> Measure:
    """Measure the seconds that steps wait for data, against the total seconds of the same steps."""
    with ranks(kind, threads=CORES) as run_block:
        run_block("ours")
        found = [run_block("ours") for _ in range(PAIRS)]
    ours, theirs = zip(*found, strict=True)
    return Measure(name=name, ours=ours, theirs=theirs, goal=goal)


def wandb_unreachable() -> Measure:
    """Measure training with an unreachable Weights & Biases server against training without it."""
    unreachable = {"WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": "0" * 40}
    with mock.patch.dict(os.environ, unreachable):
        return two_sides("wandb-unreachable", "wandb", 1.02, threads=1, pairs=FINE_PAIRS)


def save_steps() -> tuple[Measure, Result]:
    """Measure steps with a background save, with torch.save, and without a save."""
    with ranks("saves", threads=CORES) as run_block:
        rounds = [[run_block(side) for side in ("without", "ours", "theirs")] for _ in range(SAVE_ROUNDS + 1)][1:]
    return compare_saves(rounds)


def compare_saves(rounds: Sequence[Sequence[tuple[float, ...]]]) -> tuple[Measure, Result]:
    """Return the results of rounds of steps without a save, with a background save and with torch.save.

    Each side of a round has a time in seconds and a number of steps. If a side has more steps than the side without a
    save, subtract the time of the additional steps, at the speed of the side without a save.
    """
    without, ours, theirs = (
        tuple(sides[number][0] - (sides[number][1] - sides[0][1]) * sides[0][0] / sides[0][1] for sides in rounds)
        for number in range(3)
    )
    added = [median(a - b for a, b in zip(side, without, strict=True)) for side in (ours, theirs)]
    steps = max(sides[1][1] for sides in rounds)
    text = f"background save {added[0]:+.2f} s in at most {steps:.0f} steps, torch.save {added[1]:+.2f} s"
    facts = {"background": added[0], "torch": added[1], "without": median(without), "steps": steps}
    measure = Measure(name="save-steps", ours=ours, theirs=theirs, goal=1.0)
    return measure, Result(name="save-steps-added", text=text, is_met=True, facts=facts)


def bucket_wait_share() -> Measure:
    """Measure the wait for images that each step reads from a bucket, on an S3 server on this machine."""
    with running("s3") as server:
        port = server[SETTINGS_KEY]["port"]
        AmazonStore(port).create(BUCKET)
        settings = {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
        settings |= dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), "any")
        with mock.patch.dict(os.environ, settings):
            return wait_share("data-wait-bucket", "bucket", 0.05)


def two_processes() -> Measure:
    """Measure two processes that exchange gradients, against one process with as many threads as both together."""
    with ranks("ranks", world=2, threads=CORES // 2) as two, ranks("ranks", threads=CORES) as one:
        return alternate("two-processes", 1 / 0.95, lambda: two("ours")[0], lambda: one("ours")[0], PAIRS)


def digits() -> Measure:
    """Measure the seconds of the digits recipe against the promise. Raises BenchError below the promised accuracy."""
    if not has_digits():
        raise BenchError("the digits data set is missing: run `make setup`")
    words = [sys.executable, "-m", "trainer", "digits", f"--data-dir={digits_folder()}", f"--threads={CORES}"]
    environment = {**os.environ, **WITHOUT_GPU}
    started = time.perf_counter()
    done = subprocess.run(words, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    seconds = time.perf_counter() - started
    found = re.search(r"^done test_accuracy=(\S+)", done.stdout, re.MULTILINE)
    if not found or float(found[1]) < PROMISED_ACCURACY:
        raise BenchError(
            f"the digits recipe ended with exit status {done.returncode} and without an accuracy of "
            f"{PROMISED_ACCURACY} %:\n{done.stdout[-2000:]}"
        )
    return Measure(name="digits", ours=(seconds,), theirs=(PROMISED_SECONDS,), goal=1)


def compilations() -> Result:
    """Count the graphs that PyTorch/XLA compiles after step STEADY_STEP, in two epochs on eight virtual CPU devices."""
    if not XLA_PYTHON.exists():
        raise BenchError("there is no .venv-xla: run `make xla`")
    with tempfile.TemporaryDirectory() as folder:
        write_digits(Path(folder), samples=XLA_SAMPLES)
        done = subprocess.run(
            [
                *(str(XLA_PYTHON), "-m", "trainer", "digits", "--epochs=2", "--batch-size=100", "--sharding=model"),
                *("--log-steps=1", f"--data-dir={folder}", f"--bucket=file://{folder}/bucket"),
            ],
            cwd=PROJECT,
            env={**os.environ, "PJRT_DEVICE": "CPU", "CPU_NUM_DEVICES": "8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
    counts = [int(count) for count in COMPILATIONS.findall(done.stdout)]
    if done.returncode or len(counts) <= STEADY_STEP:
        raise BenchError(
            f"the run on XLA ended with exit status {done.returncode} after {len(counts)} steps:\n{done.stdout[-2000:]}"
        )
    found, steps = counts[-1] - counts[STEADY_STEP - 1], len(counts) - STEADY_STEP
    return Result(
        name="spmd-compilations",
        text=f"{found} in {steps} steps  goal 0  {'missed' if found else 'met'}",
        is_met=found == 0,
        facts={"found": found, "steps": steps, "goal": 0},
    )


def gpu_measures() -> tuple[Measure | Result, ...]:
    """Measure all sides on a GPU: Trainyard's in one process, and the reference scripts' in another."""
    if not torch.cuda.is_available():
        raise BenchError("there is no GPU here that torch can compute on")
    with (
        ranks("gpu", threads=1, gpu=True) as ours,
        ranks("gpu", threads=1, program="bench.reference_loops", gpu=True) as theirs,
    ):
        sides = {"ours": ours, "torchvision": theirs, "best": ours, "timm": theirs, "plain": ours}
        times = time_rounds("gpu", {**sides, "imagenet": theirs, "compiled": ours}, GPU_ROUNDS)
    config, gpu = first_gpu(), torch.cuda.get_device_name(0)
    images = config.batch_size * config.steps_per_epoch
    rates = {side: images / median(times[side]) for side in ("best", "compiled")}
    return (*compare(times, GPU_GOALS), *gpu_rates(gpu, rates), *language_variants())


def language_variants() -> tuple[Measure | Result, ...]:
    """Measure a language model of 1B parameters on a GPU against torchtitan's: as it is, compiled, and with float8."""
    gpu = torch.cuda.get_device_name(0)
    variants = [
        each for each in GPU_VARIANTS if each != "float8" or torch.cuda.get_device_capability(0) >= FLOAT8_CAPABILITY
    ]
    peak = peak_flops(torch.device("cuda"), sixteen_bits=True)
    found: list[Measure | Result] = []
    for variant in variants:
        measure = two_sides(f"gpu-language-{variant}", f"gpu_{variant}", 1.0, threads=1, pairs=GPU_ROUNDS, gpu=True)
        found += [measure, variant_rate(variant, gpu, median(measure.ours), peak)]
    return tuple(found)


def variant_rate(variant: str, gpu: str, seconds: float, peak: float | None) -> Result:
    """Return the tokens a second of a variant, and its share of the GPU's peak in 16 bits."""
    config = variant_config(Path(), variant)
    rate = LANGUAGE_STEPS * config.batch_size * config.context / seconds
    flops = config.sizes.flops_per_token(context=config.context, vocabulary=config.vocabulary)
    mfu = rate * flops / peak if peak else None
    text = f"{rate:,.0f} tokens/s on {gpu}, {'no peak is known' if mfu is None else f'MFU {mfu:.1%}'}"
    return Result(
        name=f"gpu-language-rate-{variant}", text=text, is_met=True, facts={"gpu": gpu, "rate": rate, "mfu": mfu}
    )


def gpu_rates(gpu: str, rates: Mapping[str, float]) -> tuple[Result, ...]:
    """Return the images per second of each side. The GPU's floor applies only to the fastest side."""
    fastest = max(rates, key=lambda side: rates[side])
    found = []
    for side, rate in rates.items():
        floor, goal = GPU_RATES.get(gpu, (None, None)) if side == fastest else (None, None)
        is_met = floor is None or rate >= floor
        claim = "no floor applies"
        if floor is not None:
            claim = f"floor {floor:,.0f}, goal {goal:,.0f}  {'met' if is_met else 'missed'}"
        facts = {"gpu": gpu, "rate": rate, "floor": floor, "goal": goal}
        text = f"{rate:,.0f} images/s on {gpu}  {claim}"
        found.append(Result(name=f"gpu-rate-{side}", text=text, is_met=is_met, facts=facts))
    return tuple(found)


def measures() -> dict[str, TrainerMeasure]:
    """Return each measurement by its name. A goal is a maximum ratio of times: 1 / 0.98 means 98 % of the speed."""
    return {
        "loop-floor": lambda: two_sides("loop-floor", "loop", 1 / 0.98, threads=1, pairs=FINE_PAIRS),
        "language-loop": lambda: two_sides("language-loop", "language", 1 / 0.98, threads=1, pairs=LANGUAGE_PAIRS),
        "torchtitan-model": lambda: two_sides(
            "torchtitan-model", "torchtitan", 1 / 0.98, threads=1, pairs=LANGUAGE_PAIRS
        ),
        "observability": lambda: two_sides("observability", "observability", 1.01, threads=1, pairs=FINE_PAIRS),
        "wandb-unreachable": wandb_unreachable,
        "references": references,
        "data-wait-generated": lambda: wait_share("data-wait-generated", "generated", 0.02),
        "data-wait-cache": lambda: wait_share("data-wait-cache", "cache", 0.02),
        "data-wait-bucket": bucket_wait_share,
        "two-processes": two_processes,
        "restart": lambda: alternate(
            "restart",
            0.5,
            lambda: restart_on_one_host("trainer.launch"),
            lambda: restart_on_one_host("torch.distributed.run"),
            PAIRS,
        ),
        "digits": digits,
        "spmd-compilations": compilations,
        "async-save": lambda: two_sides("async-save", "save", 0.05, threads=CORES, pairs=PAIRS),
        "save-steps": save_steps,
        "gpu": gpu_measures,
    }


def main() -> int:
    """Run the measurements and return the exit code of `run_bench`."""

    def run_measure(measure: TrainerMeasure, _names: set[str]) -> tuple[Measure | Result, ...]:
        found = measure()
        return found if isinstance(found, tuple) else (found,)

    has_gpu = torch.cuda.is_available()
    return run_bench(
        "bench.trainer",
        {(name,): partial(run_measure, measure) for name, measure in measures().items()},
        optional=() if has_gpu else ("gpu",),
        unmeasured=UNMEASURED_GOALS | ({} if has_gpu else UNMEASURED_WITHOUT_GPU),
    )


if __name__ == "__main__":
    sys.exit(main())
