"""Tables of facts: a JSON file per resource type with one input per line. People write its rules by hand."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from simulation.cloud.fact_table import FOLDER, file_name
from simulation.cloud.fact_values import parts
from simulation.facts.terraform import UNNAMED

Table = dict[str, Any]
HAND = ("rules", "delete_before_replace")
"""Keys that people write by hand."""


def read_table(token: str, folder: Path = FOLDER) -> Table:
    """Return the table of a resource type; empty if there is none."""
    file = folder / file_name(token)
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}


def write_table(table: Table, folder: Path = FOLDER) -> None:
    """Write a table to its file."""
    file = folder / file_name(table["type"])
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(formatted(table), encoding="utf-8")


def formatted(table: Table) -> str:
    """Return a table as JSON with one input or one rule per line."""
    lines = []
    for key, value in table.items():
        if isinstance(value, dict):
            inner = [f"  {json.dumps(name)}: {json.dumps(each)}" for name, each in value.items()]
            lines.append(f'"{key}": {{\n' + ",\n".join(inner) + "\n}")
        elif isinstance(value, list):
            inner = [f"  {json.dumps(each)}" for each in value]
            lines.append(f'"{key}": [\n' + ",\n".join(inner) + "\n]")
        else:
            lines.append(f'"{key}": {json.dumps(value)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def updated(old: Table, new: Table) -> Table:
    """Return `new` with the keys in HAND from `old`."""
    return {**new, **{key: old[key] for key in HAND if key in old}}


def keep_names(old: Table, new: Table) -> None:
    """Name anonymous functions in `new` as people named them in `old`."""
    for path, fact in new["inputs"].items():
        for key in ("suppress", "check"):
            if fact.get(key) == UNNAMED and (name := old.get("inputs", {}).get(path, {}).get(key)):
                fact[key] = name


def newer_inputs(old: Table, new: Table, outputs: Collection[str]) -> Table:
    """Return inputs of the old table that Pulumi's SDK has and the source does not know yet.

    The table has only their types. A provider's source that is older than the SDK lacks them.
    """
    found: Table = {}
    for path, fact in old.get("inputs", {}).items():
        parent = path.rpartition(".")[0]
        owner = {**new["inputs"], **found}.get(parent, {"type": ""})
        is_in_block = not parent or parts(owner["type"])[1] == "block"
        if fact["line"].startswith("pulumi-") and path not in new["inputs"] and path not in outputs and is_in_block:
            found[path] = fact
    return found


def changes(old: Table, new: Table) -> Iterator[str]:
    """Yield the changed facts of a table as lines of text."""
    before, after = old.get("inputs", {}), new["inputs"]
    for name in sorted({*before, *after}):
        if name not in after:
            yield f"{new['type']} {name}: removed"
        elif name not in before:
            yield f"{new['type']} {name}: added, {_without_line(after[name])}"
        else:
            for key in sorted(({*before[name], *after[name]}) - {"line", "replace_line"}):
                was, now = before[name].get(key), after[name].get(key)
                if was != now:
                    yield f"{new['type']} {name}.{key}: {was!r} -> {now!r}, {after[name]['line']}"
    if old and old.get("plan_functions") != new.get("plan_functions"):
        yield f"{new['type']} plan_functions: {old.get('plan_functions')} -> {new.get('plan_functions')}"


def _without_line(fact: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in fact.items() if key != "line"})
