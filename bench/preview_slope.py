"""Time that each further pool or job adds to `pulumi preview` of a cloud stack, with few of them and with many."""

from __future__ import annotations

import os
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.measure import PROJECT, Measure
from bench.programs import BenchStack
from commands.rehearse.folder import environment
from commands.stack import WITHOUT_SNAPSHOTS
from simulation.cloud.state import new_state

COUNTS = (1, 257, 513)
"""Numbers of pools or jobs whose previews are compared."""
GOAL = 1.2
ROUNDS = 5
STACK = "bench-slope"


def config(pools: int, jobs: int) -> dict[str, Any]:
    """Return the settings of a GKE stack with these numbers of pools and jobs."""
    platform = {
        "kind": "gke",
        "project": "some-project",
        "name": "slope",
        "image": {"prebuilt": f"gcr.io/some-project/trainer@sha256:{'0' * 64}"},
        "pools": [
            {"name": f"pool-{index}", "machine_type": "g2-standard-8", "nodes": max(COUNTS) if index == 0 else 1}
            for index in range(pools)
        ],
    }
    ask = {"recipe": "digits", "accelerator": "nvidia-l4", "resources": {"cpu": 2, "memory": "4Gi"}}
    names = [{"name": f"job-{index}", **ask} for index in range(jobs)]
    return {"trainyard:platform": platform, "trainyard:jobs": names}


class Previews:
    """Stack of simulated clouds that is never deployed."""

    def __init__(self, folder: Path) -> None:
        clouds = folder / "clouds"
        clouds.mkdir()
        new_state(clouds)
        (clouds / "authorities.pem").write_bytes(b"")
        certificates = {"SSL_CERT_FILE": os.environ.get("SSL_CERT_FILE", "")}
        self._stack = BenchStack(
            STACK, PROJECT, folder / "stack", {**environment(clouds), **WITHOUT_SNAPSHOTS, **certificates}
        )

    def seconds(self, pools: int, jobs: int) -> float:
        """Return the CPU seconds of one preview, summed over its processes.

        The wall-clock times of two previews of one stack differ by more than fifty jobs add.
        """
        before = _cpu_seconds_of_ended_processes()
        self._stack.preview(config(pools, jobs))
        return _cpu_seconds_of_ended_processes() - before

    def slope(self, name: str, *, pools: int, jobs: int) -> Measure:
        """Return the milliseconds for each further pool or job: those of the second half compared with the first half.

        `pools` and `jobs` are 1 for the counted resource, else 0. Each round previews all three sizes, so that a
        temporary slowdown affects all of them. The first round does not count.
        """
        low, middle, high = COUNTS
        late: list[float] = []
        early: list[float] = []
        for number in range(ROUNDS + 1):
            few, some, many = (self.seconds(*(1 + each * (count - 1) for each in (pools, jobs))) for count in COUNTS)
            if number:
                early.append(1000 * (some - few) / (middle - low))
                late.append(1000 * (many - some) / (high - middle))
            shown = f"{low}: {few:.2f} s, {middle}: {some:.2f} s, {high}: {many:.2f} s"
            print(f"  {name} {number}/{ROUNDS}: {shown}", file=sys.stderr, flush=True)
        return Measure(name=name, ours=tuple(late), theirs=tuple(early), goal=GOAL, unit="ms")


def _cpu_seconds_of_ended_processes() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def preview_slopes() -> list[Measure]:
    """Take the measures."""
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        previews = Previews(Path(folder))
        return [previews.slope("preview-per-job", pools=0, jobs=1), previews.slope("preview-per-pool", pools=1, jobs=0)]
