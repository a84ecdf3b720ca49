"""`make bench`: check the speed claims, except those of `make bench-trainer`. Fail if a goal is missed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

from bench.control_plane import control_plane, preview_slopes
from bench.harness import run_bench
from bench.large_job import large_job
from bench.measure import BenchError, Measure, two_sides
from commands.monitor.cluster import Unreachable

CLUSTER = ("first-step", "noop-up", "preview")
"""Measurements that need a cluster of the local platform."""
DDP_PAIRS = 61
"""Number of pairs of timed blocks in `ddp-step`. A limit of 2 % overhead needs many pairs."""


def cluster_measures(names: set[str]) -> Iterator[Measure]:
    """Run the measurements that need a cluster."""
    try:
        with control_plane() as plane:
            if "first-step" in names:
                yield plane.first_step()
            if names & {"noop-up", "preview"}:
                yield from plane.no_change()
    except Unreachable as error:
        raise BenchError(str(error)) from None


def main() -> int:
    """Run the measurements and return the exit code of `run_bench`."""
    # On SIGTERM, raise SystemExit. The `finally` blocks then end the programs that the bench has started.
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(143))
    return run_bench(
        "bench",
        {
            CLUSTER: cluster_measures,
            # Trainyard's training loop on two ranks against a plain loop, with the model of the recipe `digits`.
            ("ddp-step",): lambda _names: [two_sides("ddp-step", "ddp", 1.02, world=2, threads=1, pairs=DDP_PAIRS)],
            ("hosts-1024",): lambda _names: large_job(),
            ("preview-slope",): lambda _names: preview_slopes(),
        },
    )


if __name__ == "__main__":
    sys.exit(main())
