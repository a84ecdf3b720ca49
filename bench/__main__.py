"""`make bench`: measure every speed claim, print one line each and write JSON. Fails if a goal is missed."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from bench.control_plane import control_plane, preview_slopes
from bench.large_job import large_job
from bench.measure import PROJECT, BenchError, Measure, machine, two_sides
from commands.monitor.cluster import Unreachable

RESULT = PROJECT / ".trainyard" / "bench.json"
CLUSTER = ("first-step", "noop-up", "preview")
"""Measures that need a cluster of the local platform."""
NAMES = (*CLUSTER, "ddp-step", "hosts-1024", "preview-slope")
DDP_PAIRS = 61
"""Number of pairs of `ddp-step`, whose goal is in percent."""


def cluster_measures(names: set[str]) -> Iterator[Measure]:
    """Take the measures that need a cluster."""
    with control_plane() as plane:
        if "first-step" in names:
            yield plane.first_step()
        if names & {"noop-up", "preview"}:
            yield from plane.no_change()


def ddp_step() -> Measure:
    """Measure Trainyard's training loop on two ranks against a plain loop, on the digits recipe's model."""
    return two_sides("ddp-step", "ddp", 1.02, world=2, threads=1, pairs=DDP_PAIRS)


def take_measures(names: set[str]) -> Iterator[dict[str, Any]]:
    """Print each measure and yield its record. Report a group that fails and continue with the others."""
    groups: dict[tuple[str, ...], Callable[[], Iterable[Measure]]] = {
        CLUSTER: lambda: cluster_measures(names),
        ("ddp-step",): lambda: [ddp_step()],
        ("hosts-1024",): large_job,
        ("preview-slope",): preview_slopes,
    }
    for group, take in groups.items():
        if not (wanted := sorted(names & set(group))):
            continue
        try:
            for measure in take():
                print(measure.line(), flush=True)
                yield measure.record()
        except (BenchError, Unreachable) as error:
            print(f"make bench: not measured: {', '.join(wanted)}: {error}", file=sys.stderr)
            yield from ({"name": name, "met": None, "error": str(error)} for name in wanted)


def main() -> int:
    """Take the measures. Return 0 if they meet every goal, 1 if one misses its goal, 2 if one failed."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--json", type=Path, default=RESULT, help="file for the result (default: %(default)s)")
    parser.add_argument("--only", choices=NAMES, action="append", help="only this measure; can be repeated")
    options = parser.parse_args()
    # Programs that the bench started end with it, even after SIGTERM.
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(143))
    conditions = machine()
    records = list(take_measures(set(options.only or NAMES)))
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"machine": conditions, "measures": records}, indent=1) + "\n", encoding="utf-8")
    are_met = [record["met"] for record in records]
    return 2 if None in are_met else 0 if all(are_met) else 1


if __name__ == "__main__":
    sys.exit(main())
