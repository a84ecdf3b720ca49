"""Differences between manifests, one line per value, as a unified diff without line numbers."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any

_PARENT = re.compile(r".*(?:containers\[[^]]+\]|\bspec|\bmetadata)(?=\.)|[^.]+")
"""Path of the innermost container, spec or metadata, or else of the object."""


def difference(old: Sequence[dict[str, Any]], new: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the changed lines between old and new manifests. A header names the parent of the lines below it.

    One line of context gives the position of an insertion. Headers have no line numbers, because every edit of a
    complete file would change them. A removed path has one line, `-`, instead of its values.
    """
    before, after, shown = list(_lines(old)), list(_lines(new)), ""
    kept = {parent for parent, _ in after}
    for tag, first, last, start, end in difflib.SequenceMatcher(None, before, after, autojunk=False).get_opcodes():
        if tag == "equal":
            continue
        context = before[max(first - 1, 0) : first] if tag == "insert" else []
        signed = [(" ", *line) for line in context]
        signed += [("-", *line) for line in before[first:last]] + [("+", *line) for line in after[start:end]]
        for parent in dict.fromkeys(parent for _, parent, _ in signed):
            if parent != shown:
                yield f"@@ {parent} @@"
                shown = parent
            lines = [f"{sign}{line}" for sign, its_parent, line in signed if its_parent == parent]
            yield from lines if parent in kept else ["-"]


def _lines(manifests: Sequence[dict[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield each value of the manifests as its parent's path and a line with the remaining path and the value."""
    for manifest in manifests:
        for path, value in _values(manifest, manifest["kind"]):
            match = _PARENT.match(path)
            assert match is not None, path
            yield match[0], f"{path[match.end() + 1 :]}: {value!r}"


def _values(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield each scalar with its path.

    A path has `[name]`, or else `[position]`, for an object in a list, and `[]` for a scalar in a list.
    """
    if isinstance(value, dict) and value:
        for key in sorted(value):
            yield from _values(value[key], f"{path}.{key}")
    elif isinstance(value, list) and value:
        for position, entry in enumerate(value):
            if not isinstance(entry, dict):
                yield f"{path}[]", entry
            elif "name" not in entry:
                yield from _values(entry, f"{path}[{position}]")
            else:
                rest = {key: item for key, item in entry.items() if key != "name"}
                yield from _values(rest, f"{path}[{entry['name']}]")
    else:
        yield path, value
