"""Recovery of nodes: the repair step for each state of a node, and the cgroups of a node that restarts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.local.leftovers import cgroup_folders, empty_cgroups, end_cgroups, make_cgroup
from infra.local.repair import MAX_SILENT_SECONDS, TAINT, Step, step_for
from workloads.objects import LOST_NODE_SECONDS

NOW = datetime(2026, 11, 23, 4, 0, 0, tzinfo=UTC)
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}


def node(status: str, seconds: float, *taints: Any) -> dict[str, Any]:
    """Return a node whose condition `Ready` has had this status for some seconds."""
    since = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": status, "lastTransitionTime": since}
    return {"spec": {"taints": [*taints]} if taints else {}, "status": {"conditions": [ready]}}


@pytest.mark.parametrize(
    ("node_object", "has_kubelet", "step"),
    [
        (node("True", 3600), True, "nothing"),
        (node("Unknown", MAX_SILENT_SECONDS - 1, UNREACHABLE), True, "nothing"),
        (node("Unknown", MAX_SILENT_SECONDS, UNREACHABLE), True, "take out of service"),
        (node("Unknown", 0, UNREACHABLE), False, "take out of service"),
        (node("True", 3600), False, "nothing"),
        (node("Unknown", 3600, UNREACHABLE, TAINT), True, "nothing"),
        (node("Unknown", 3600, UNREACHABLE, TAINT), False, "nothing"),
        (node("False", 3600), True, "nothing"),
        (node("False", 1, TAINT), True, "nothing"),
        (node("True", 1, TAINT), True, "return to service"),
        ({"spec": {}, "status": {}}, True, "nothing"),
    ],
)
def test_repair_step_follows_node_state(node_object: dict[str, Any], has_kubelet: bool, step: Step) -> None:
    assert step_for(node_object, NOW, lambda: has_kubelet) == step


def test_repair_of_silent_node_waits_longer_than_toleration() -> None:
    assert MAX_SILENT_SECONDS > LOST_NODE_SECONDS


CLUSTER = "/trainyard/tests-cgroups"


@pytest.fixture
def cluster() -> Iterator[str]:
    """Yield the cgroup of a cluster of two nodes, with one pod's cgroup in each."""
    for node in (0, 1):
        make_cgroup(f"{CLUSTER}/node-{node}/pods/one")
    yield CLUSTER
    end_cgroups(CLUSTER)
    assert cgroup_folders(CLUSTER) == []


def test_empty_cgroups_kills_processes_and_removes_cgroups_of_its_node(cluster: str) -> None:
    with subprocess.Popen(["sleep", "600"]) as left:
        for folder in cgroup_folders(f"{cluster}/node-0"):
            if folder.name == "one":
                (folder / "cgroup.procs").write_text(str(left.pid), encoding="ascii")
        empty_cgroups(f"{cluster}/node-0")
        assert left.wait(timeout=10) == -9
    assert cgroup_folders(f"{cluster}/node-0") == []
    assert cgroup_folders(f"{cluster}/node-1")
    make_cgroup(f"{cluster}/node-0")
    assert cgroup_folders(f"{cluster}/node-0")
