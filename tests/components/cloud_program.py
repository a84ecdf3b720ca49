"""Run of the whole program for a cloud's settings against Pulumi mocks, without image builds and without a cloud."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from infra import cloud_image
from tests.components.test_program import program
from tests.recording import RecordingEngine


@functools.cache
def _graph(platform: str, jobs: str) -> tuple[RecordingEngine, dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cloud_image, "prepare_context", lambda: None)
        return program(json.loads(platform), json.loads(jobs))


def graph(platform: dict[str, Any], jobs: list[dict[str, Any]] | None = None) -> tuple[RecordingEngine, dict[str, Any]]:
    """Return the program's registrations and outputs. Equal settings run once."""
    return _graph(json.dumps(platform), json.dumps(jobs or []))


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
