"""Fact tables: facts about the inputs of resource types, from the source of Terraform providers."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from simulation.cloud.values import Unknown

FOLDER = Path(__file__).parent / "facts"
"""Folder of the tables, one JSON file for each type.

`python -m simulation.facts CHECKOUT --write` writes them from a checkout of a Terraform provider.
"""


def file_name(token: str) -> str:
    """Return the path of a type's table in FOLDER, such as `gcp/container.cluster.json`."""
    package, path, _ = token.split(":")
    return f"{package}/{path.replace('/', '.')}.json"


@dataclass(frozen=True, kw_only=True)
class FactTable:
    """Facts about the inputs of a resource type."""

    type: str
    provider: str
    """GitHub repository of the Terraform provider."""
    commit: str
    folder: str
    """Folder in the repository. A fact's `line`, such as `node_pool.go:12`, is relative to this folder."""
    inputs: Mapping[str, Mapping[str, Any]]
    """Dotted path, without indices -> its facts."""
    rules: Sequence[Mapping[str, Any]] = ()
    """Hand-written rules across inputs."""
    delete_before_replace: bool = False
    """True if the engine must delete the old resource before it creates the new one."""

    @cached_property
    def children(self) -> Mapping[str, tuple[str, ...]]:
        """Path of a block, with a dot at the end -> paths of its inputs. The path of the resource itself is empty."""
        found: dict[str, list[str]] = {}
        for path in self.inputs:
            parent, dot, _ = path.rpartition(".")
            found.setdefault(parent + dot, []).append(path)
        return {parent: tuple(paths) for parent, paths in found.items()}

    def source(self, line: str) -> str:
        """Return the URL of `file:line` or `file#key` in the provider's source, else of Pulumi's registry."""
        if "#" not in line and ":" not in line:
            return "https://www.pulumi.com/registry/packages"
        path, mark, place = line.partition("#") if "#" in line else line.partition(":")
        number = f"#L{place}" if mark == ":" else f"#:~:text={place}"
        return f"https://github.com/{self.provider}/blob/{self.commit}/{self.folder}/{path}{number}"

    def rules_of(self, *kinds: str) -> Iterator[Mapping[str, Any]]:
        """Yield the rules of these kinds."""
        return (each for each in self.rules if each["rule"] in kinds)


@cache
def fact_table(token: str) -> FactTable | None:
    """Return the table of a resource type, or None."""
    file = FOLDER / file_name(token)
    if not file.exists():
        return None
    content = json.loads(file.read_text(encoding="utf-8"))
    del content["plan_functions"]
    return FactTable(**content)


_BOOLEANS = {"true": True, "false": False}
DESCRIPTIONS = {"bool": "true or false", "int": "a whole number", "float": "a number", "string": "text"}
"""Type of a scalar -> its description in errors."""


def converted(kind: str, value: Any) -> Any:
    """Return a scalar as a value of the provider's type `kind`. Raises ValueError."""
    if isinstance(value, Unknown):
        return value
    if kind == "bool":
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value in _BOOLEANS:
            return _BOOLEANS[value]
    elif kind == "string":
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str | int | float):
            return str(value)
    elif not isinstance(value, bool) and isinstance(value, int | float | str):
        number = float(value)
        if kind == "float" or number.is_integer():
            return number if kind == "float" else int(number)
    raise ValueError(f"must be {DESCRIPTIONS[kind]}, not {value!r}")


def parts(kind: str) -> tuple[str, str]:
    """Return the collection and the element of a type such as `list(string)`. A scalar has an empty collection."""
    outer, _, inner = kind.partition("(")
    return (outer, inner.removesuffix(")")) if inner else ("", outer)
