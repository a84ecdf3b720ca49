"""Run of the whole program for a cloud's settings against Pulumi mocks, without image builds and without a cloud."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from infra import cloud_image
from simulation.cloud import checking, fact_check
from simulation.cloud.fact_table import fact_table
from simulation.cloud.model import Properties
from tests.components.test_program import program
from tests.recording import Record, RecordingEngine

PLACES: Properties = {"project": "some-project", "region": "us-central1", "zone": "us-central1-a"}
ACCEPTED = set[str]()
"""Type and inputs of each resource without rejections. `_graph` checks each of them only once."""


@functools.cache
def _graph(platform: str, jobs: str) -> tuple[RecordingEngine, dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cloud_image, "prepare_context", lambda: None)
        engine, outputs = program(json.loads(platform), json.loads(jobs))
    for record in engine.records:
        inputs = f"{record.type} {record.inputs}"
        if record.type.startswith(("gcp:", "aws:")) and inputs not in ACCEPTED:
            assert rejections(record) == []
            ACCEPTED.add(inputs)
    return engine, outputs


def rejections(record: Record) -> list[str]:
    """Return the problems that a real provider finds in a resource's inputs, by its table of facts."""
    table = fact_table(record.type)
    if table is None:
        return [f"{record.type} has no table of facts"]
    urn = f"urn:pulumi:test::trainyard::{record.type}::{record.name}"
    inputs = checking.with_defaults(record.type, urn, b"", {}, record.inputs, PLACES)
    return [f"{record.type} {each}" for each in fact_check.problems(table, inputs)]


def graph(platform: dict[str, Any], jobs: list[dict[str, Any]] | None = None) -> tuple[RecordingEngine, dict[str, Any]]:
    """Return the program's registrations and outputs. Run the program only once for equal settings.

    Fail if a real provider would reject one of the resources.
    """
    return _graph(json.dumps(platform), json.dumps(jobs or []))


A3 = {"machine_type": "a3-highgpu-8g"}


def gke(*pools: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """Return a GKE platform with its pools."""
    named = [{"name": f"pool-{index}", **pool} for index, pool in enumerate(pools)]
    return {"kind": "gke", "project": "some-project", **({"pools": named} if pools else {}), **changes}


def pools(platform: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the inputs of each node pool of a platform by its name, without the system pool."""
    engine, _ = graph(platform)
    found = {record.inputs["name"]: record.inputs for record in engine.of_type("nodePool:NodePool")}
    assert found.pop("system")
    return found


def pool(**keys: Any) -> dict[str, Any]:
    """Return the inputs of a GKE platform's only node pool. An argument `platform_KEY` sets KEY of the platform."""
    platform = {key.removeprefix("platform_"): keys.pop(key) for key in list(keys) if key.startswith("platform_")}
    (found,) = pools(gke(keys, **platform)).values()
    return found


def cluster(**changes: Any) -> dict[str, Any]:
    """Return the inputs of the control plane of a GKE platform with these changes."""
    (record,) = graph(gke(**changes))[0].of_type("cluster:Cluster")
    return record.inputs
