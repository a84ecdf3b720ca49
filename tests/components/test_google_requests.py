"""Requests of GKE stacks: only fields and values that Google's discovery documents have."""

from __future__ import annotations

from typing import Any

import pytest

from tests.components.cloud_program import A3, gke, graph
from tests.components.google_requests import SCHEMAS, body, document, problems, services

KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
STACKS: dict[str, dict[str, Any]] = {
    "default": gke(),
    "fabric": gke({"machine_type": "a3-megagpu-8g"}),
    "rdma": gke({"machine_type": "a3-ultragpu-8g", "capacity": "spot"}, zone="us-central1-b"),
    "queued": gke({**A3, "nodes": 1, "capacity": "queued"}),
    "slice": gke({"accelerator": "v4-32", "min_nodes": 0}, zone="us-central2-b"),
    "ironwood": gke({"accelerator": "v7x", "topology": "2x4x4"}, zone="us-central1-c"),
    "fallback order": gke(
        {**A3, "nodes": 1, "capacity": ["reservation:r", "flex-start", "spot"]},
        regional=True,
        authorized_networks=["198.51.100.0/24"],
        secrets_key=KEY,
        kubernetes_version="1.35",
        deletion_protection=True,
    ),
    "disks": gke(
        {"machine_type": "g2-standard-8", "preloaded_image_disk": "projects/p/global/images/i", "max_run_hours": 5},
        bucket={"keep": False, "checkpoint_days": 5, "name": "b-x"},
    ),
}


@pytest.mark.parametrize("name", STACKS)
def test_google_request_bodies_match_discovery_documents(name: str) -> None:
    engine, _ = graph(STACKS[name])
    wrong = []
    for record in engine.records:
        if record.type in SCHEMAS:
            api, schema = SCHEMAS[record.type]
            wrong += [f"{record.name}: {each}" for each in problems(api, schema, body(record.type, record.inputs))]
    assert wrong == []


def test_gke_stack_enables_existing_apis() -> None:
    enabled = {record.inputs["service"] for record in graph(STACKS["default"])[0].of_type("projects/service:Service")}
    assert enabled
    assert enabled - services() == set()


def test_gke_nodes_have_existing_oauth_scopes() -> None:
    pools = graph(STACKS["default"])[0].of_type("nodePool:NodePool")
    scopes = {scope for record in pools for scope in record.inputs["nodeConfig"]["oauthScopes"]}
    assert scopes
    assert scopes - document("container.v1beta1")["auth"]["oauth2"]["scopes"].keys() == set()


def test_google_request_types_are_in_some_stack() -> None:
    made = {record.type for settings in STACKS.values() for record in graph(settings)[0].records}
    assert set(SCHEMAS) - made == set()


def test_google_request_problems_name_unknown_fields_and_values() -> None:
    pool = {"name": "gpus", "upgradeSettings": {"strategy": "FAST"}, "flavour": "x", "initialNodeCount": "2"}
    assert [each.partition(":")[0] for each in problems("container.v1beta1", "NodePool", pool)] == [
        "NodePool.upgradeSettings.strategy",
        "NodePool.flavour",
        "NodePool.initialNodeCount",
    ]
