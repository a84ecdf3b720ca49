"""Valid configurations, changes that make them invalid, and their errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from settings.problems import ConfigError
from stack.config import parse

JOB = {"name": "digits", "recipe": "digits", "resources": {"cpu": "1m", "memory": "900Mi"}, "shared_memory": "1Mi"}
PLATFORM = {"kind": "local"}
KUBECONFIG = Path(__file__).with_name("kubeconfig.yaml")
"""Kubeconfig with the single context `kind`."""
CLUSTER = {"kind": "kubeconfig", "context": "kind", "image": "example.com/trainer:1"}


def refusals(values: dict[str, Any]) -> list[str]:
    """Return the error lines of an invalid configuration."""
    with pytest.raises(ConfigError) as caught:
        parse(values)
    return str(caught.value).splitlines()


def job(**changes: Any) -> dict[str, Any]:
    """Return a configuration with one job that differs from a valid one."""
    return {"platform": PLATFORM, "jobs": [{**JOB, **changes}]}


def platform(**changes: Any) -> dict[str, Any]:
    """Return a configuration with a platform that differs from a valid one."""
    return {"platform": {**PLATFORM, **changes}, "jobs": [JOB]}


def cluster(**changes: Any) -> dict[str, Any]:
    """Return a configuration with an existing cluster that differs from a valid one."""
    return {"platform": {**CLUSTER, **changes}, "jobs": [JOB]}


def cloud(**changes: Any) -> dict[str, Any]:
    """Return a configuration with one job on an existing cluster, which may have accelerators."""
    return {"platform": {**CLUSTER, "kubeconfig": str(KUBECONFIG)}, "jobs": [{**JOB, **changes}]}


def without(key: str) -> dict[str, Any]:
    """Return a configuration whose job lacks a key."""
    return {"platform": PLATFORM, "jobs": [{name: value for name, value in JOB.items() if name != key}]}


def assert_refused_in_one_line(case: tuple[dict[str, Any], tuple[str, ...]]) -> None:
    """Assert that an invalid configuration gives a one-line error with these parts, in Trainyard's own words."""
    values, parts = case
    lines = refusals(values)
    assert len(lines) == 1
    assert lines[0].startswith("trainyard:")
    assert lines[0].isascii()
    for part in parts:
        assert part in lines[0]
    assert "pydantic" not in lines[0]
    assert "Input should" not in lines[0]
