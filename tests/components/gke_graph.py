"""Parts of a GKE platform's graph against Pulumi mocks."""

from __future__ import annotations

from typing import Any

from tests.components.cloud_program import graph

A3 = {"machine_type": "a3-highgpu-8g"}


def gke(*pools: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a GKE platform with its pools."""
    named = [{"name": f"pool-{index}", **pool} for index, pool in enumerate(pools)]
    return {"kind": "gke", "project": "some-project", **({"pools": named} if pools else {}), **changes}


def pools(platform: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the node pools of a platform's settings, without the system pool."""
    engine, _ = graph(platform)
    found = {record.inputs["name"]: record.inputs for record in engine.of_type("nodePool:NodePool")}
    assert found.pop("system")
    return found


def pool(**keys: Any) -> dict[str, Any]:
    """Return the only node pool of one pool."""
    platform = {key.removeprefix("platform_"): keys.pop(key) for key in list(keys) if key.startswith("platform_")}
    (found,) = pools(gke(keys, **platform)).values()
    return found


def cluster(**changes: Any) -> dict[str, Any]:
    """Return the control plane."""
    (record,) = graph(gke(**changes))[0].of_type("cluster:Cluster")
    return record.inputs
