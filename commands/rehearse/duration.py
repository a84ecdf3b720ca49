"""Estimated durations in the real clouds: the longest chain of dependent resources. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache


def longest_chain(waits_for: Mapping[str, Sequence[str]], seconds: Mapping[str, int]) -> int:
    """Return the seconds until all resources are done, if each starts when its dependencies are done."""

    @cache
    def done(name: str) -> int:
        return seconds.get(name, 0) + max((done(each) for each in waits_for.get(name, ()) if each != name), default=0)

    return max((done(name) for name in waits_for), default=0)


def turned(waits_for: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return the dependents of each resource, which `destroy` deletes before it."""
    found: dict[str, list[str]] = {name: [] for name in waits_for}
    for name, others in waits_for.items():
        for other in others:
            found.setdefault(other, []).append(name)
    return found


def in_words(seconds: int) -> str:
    """Return a duration in words, such as `23 min`, `1 h 5 min` or `40 s`."""
    if seconds < 90:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"
