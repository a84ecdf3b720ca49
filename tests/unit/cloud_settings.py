"""Settings of the cloud platforms, valid ones and changes that make them invalid."""

from __future__ import annotations

from typing import Any


def gke(**changes: Any) -> dict[str, Any]:
    """Return a GKE platform that differs from the default."""
    return {"kind": "gke", "project": "some-project", **changes}


def pool(**keys: Any) -> dict[str, Any]:
    """Return a GKE platform with one pool."""
    platform = {key.removeprefix("platform_"): keys.pop(key) for key in list(keys) if key.startswith("platform_")}
    return gke(pools=[{"name": "a", **keys}], **platform)


def tpu(accelerator: str, zone: str, **keys: Any) -> dict[str, Any]:
    """Return a GKE platform with one pool of TPUs in its zone."""
    return pool(accelerator=accelerator, platform_zone=zone, **keys)


def eks(**changes: Any) -> dict[str, Any]:
    """Return an EKS platform that differs from the default."""
    return {"kind": "eks", **changes}


def group(**keys: Any) -> dict[str, Any]:
    """Return an EKS platform with one pool."""
    return eks(pools=[{"name": "a", **keys}])


A3 = {"machine_type": "a3-highgpu-8g"}
P5 = {"machine_type": "p5.48xlarge"}
RESERVATION = "reservation:cr-0123456789abcdef0"
BLOCK = "capacity-block:cr-0123456789abcdef0"
