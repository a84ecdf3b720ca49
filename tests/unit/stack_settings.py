"""Valid settings of stacks, configurations with changes to them, and the error lines of invalid settings."""

from __future__ import annotations

from collections.abc import Iterable
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


def error_lines(values: dict[str, Any]) -> list[str]:
    """Return the error lines of an invalid configuration."""
    with pytest.raises(ConfigError) as caught:
        parse(values)
    return str(caught.value).splitlines()


def code_ids(cases: Iterable[tuple[object, str, str]]) -> list[str]:
    """Return a pytest id for each case: the code of its expected problem, the case's second item."""
    return [code for _, code, _ in cases]


def job(**changes: Any) -> dict[str, Any]:
    """Return a configuration with platform `local`. The arguments change keys of `JOB`."""
    return {"platform": PLATFORM, "jobs": [{**JOB, **changes}]}


def local_platform(**changes: Any) -> dict[str, Any]:
    """Return a configuration with `JOB`. The arguments change keys of `PLATFORM`."""
    return {"platform": {**PLATFORM, **changes}, "jobs": [JOB]}


def existing_cluster(**changes: Any) -> dict[str, Any]:
    """Return a configuration with `JOB`. The arguments change keys of `CLUSTER`."""
    return {"platform": {**CLUSTER, **changes}, "jobs": [JOB]}


def job_on_cluster(**changes: Any) -> dict[str, Any]:
    """Return a configuration with an existing cluster, whose nodes may have accelerators.

    The arguments change keys of `JOB`.
    """
    return {"platform": {**CLUSTER, "kubeconfig": str(KUBECONFIG)}, "jobs": [{**JOB, **changes}]}


def job_without(key: str) -> dict[str, Any]:
    """Return a configuration with platform `local`, whose job is `JOB` without one key."""
    return {"platform": PLATFORM, "jobs": [{name: value for name, value in JOB.items() if name != key}]}


def gke(**changes: Any) -> dict[str, Any]:
    """Return a GKE platform with these settings."""
    return {"kind": "gke", "project": "some-project", **changes}


def gke_pool(**keys: Any) -> dict[str, Any]:
    """Return a GKE platform with one pool that has these keys. An argument `platform_KEY` sets KEY of the platform."""
    platform = {key.removeprefix("platform_"): keys.pop(key) for key in list(keys) if key.startswith("platform_")}
    return gke(pools=[{"name": "a", **keys}], **platform)


def tpu_pool(accelerator: str, zone: str, **keys: Any) -> dict[str, Any]:
    """Return a GKE platform with one pool of TPUs in this zone."""
    return gke_pool(accelerator=accelerator, platform_zone=zone, **keys)


def eks(**changes: Any) -> dict[str, Any]:
    """Return an EKS platform with these settings."""
    return {"kind": "eks", **changes}


def eks_pool(**keys: Any) -> dict[str, Any]:
    """Return an EKS platform with one pool that has these keys."""
    return eks(pools=[{"name": "a", **keys}])


A3_MACHINE = {"machine_type": "a3-highgpu-8g"}
P5 = {"machine_type": "p5.48xlarge"}
RESERVATION = "reservation:cr-0123456789abcdef0"
CAPACITY_BLOCK = "capacity-block:cr-0123456789abcdef0"
