"""Command line of the bench's programs: run the requested measurements, print one line each and write JSON."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.measure import PROJECT, BenchError, Measure, Result, machine

Groups = Mapping[tuple[str, ...], Callable[[set[str]], Iterable[Measure | Result]]]
"""Names, as in `--only`, of measurements that run together -> function that runs the requested measurements."""


def run_bench(
    program: str, groups: Groups, *, optional: Collection[str] = (), unmeasured: Mapping[str, str] | None = None
) -> int:
    """Run the measurements of the command line, by default all but the optional ones. Write the results as JSON.

    `unmeasured` has goals that no measurement checks, each with the reason. Return 0 if every goal is met, 1 if a goal
    is missed, 2 if a measurement failed.
    """
    names = [name for group in groups for name in group]
    file = PROJECT / ".trainyard" / f"{program.replace('.', '-')}.json"
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description="Measure speed claims.")
    parser.add_argument("--json", type=Path, default=file, help="file for the result (default: %(default)s)")
    parser.add_argument("--only", choices=names, action="append", help="only this measurement; can be repeated")
    options = parser.parse_args()
    conditions = machine()
    requested = set(options.only or set(names) - set(optional))
    records = list(_records(program, groups, requested))
    for goal, reason in (unmeasured or {}).items():
        print(f"NOT MEASURED  {goal}: {reason}")
    found = {"machine": conditions, "measures": records, "not_measured": unmeasured or {}}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    are_met = [record["met"] for record in records]
    return 2 if None in are_met else 0 if all(are_met) else 1


def _records(program: str, groups: Groups, names: set[str]) -> Iterator[dict[str, Any]]:
    """Print each measurement and yield its record. Report a group that fails and continue with the others."""
    for group, run_group in groups.items():
        if not (requested := sorted(names & set(group))):
            continue
        try:
            for measure in run_group(names):
                print(measure.line(), flush=True)
                yield measure.record()
        except BenchError as error:
            print(f"{program}: not measured: {', '.join(requested)}: {error}", file=sys.stderr)
            yield from ({"name": name, "met": None, "error": str(error)} for name in requested)
