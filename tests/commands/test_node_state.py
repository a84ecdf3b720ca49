"""Node states, lost pods, and advice about lost nodes and full disks, from objects of a real API server (1.34)."""

from __future__ import annotations

import copy
import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from commands.monitor.cluster import Cluster
from commands.monitor.pod_state import disk_pressure_advice, lost_node_advice, lost_pods, node_line, pod_state
from commands.status import print_snapshot, take_snapshot
from infra.local.settings import cache_folder
from tests.commands.test_pod_state import API

NO_ANSWER = {
    "status": "Unknown",
    "reason": "NodeStatusUnknown",
    "message": "Kubelet stopped posting node status.",
    "lastTransitionTime": "2026-11-21T10:00:00Z",
}
NOT_READY = {"status": "False", "reason": "KubeletNotReady", "message": "container runtime is down"}


def node(**ready: str) -> dict[str, Any]:
    """Return a node with these values in its condition `Ready`."""
    found = dict(copy.deepcopy(API["nodes"][0]))
    for condition in found["status"]["conditions"]:
        if condition["type"] == "Ready":
            condition |= ready
    return found


def test_node_that_is_ready_has_no_advice_and_no_lost_pods() -> None:
    assert node_line(node()) == ("follow-0 ready", True)
    assert lost_node_advice([node()]) == ""
    assert disk_pressure_advice([node()]) == ""
    assert lost_pods([pod_state(API["pods"]["running"][0])], [node()]) == {}


def test_node_that_reports_not_ready_is_not_lost() -> None:
    assert node_line(node(**NOT_READY)) == ("follow-0 not ready (KubeletNotReady: container runtime is down)", False)
    assert lost_node_advice([node(**NOT_READY)]) == ""
    assert lost_pods([pod_state(API["pods"]["running"][0])], [node(**NOT_READY)]) == {}


def test_node_that_does_not_answer_gives_time_and_advice() -> None:
    words, is_ready = node_line(node(**NO_ANSWER))
    assert not is_ready
    assert "follow-0 has not answered since 2026-11-21T10:00:00Z (NodeStatusUnknown: Kubelet stopped" in words
    assert "`kubectl delete node follow-0`" in lost_node_advice([node(**NO_ANSWER)])


@pytest.mark.parametrize("is_local", [True, False])
def test_status_of_a_node_with_a_full_disk_has_a_remedy(is_local: bool, tmp_path: Path) -> None:
    full = node()
    for condition in full["status"]["conditions"]:
        if condition["type"] == "DiskPressure":
            condition["status"] = "True"
    if is_local:
        (tmp_path / "uid").write_text("{}", encoding="utf-8")
    cluster = SimpleNamespace(
        kubeconfig_path=str(tmp_path / "keys" / "admin.kubeconfig"),
        nodes=lambda: [full, {**node(), "metadata": {"name": "follow-1"}}],
        jobs=lambda _names: {},
        pods=lambda _names: [],
    )
    found = take_snapshot(cast(Cluster, cluster), [])
    out = io.StringIO()
    print_snapshot(found, out)
    disks = f"the disk of {cache_folder()}" if is_local else "their disks"
    assert "follow-0 ready, DiskPressure" in out.getvalue()
    assert f"  DiskPressure on follow-0: Kubernetes evicts pods and starts none there; free space on {disks}\n" in (
        out.getvalue()
    )


def test_lost_pods_on_silent_or_removed_nodes_excludes_ended_pods() -> None:
    running = pod_state(API["pods"]["running"][0])
    ended = replace(pod_state(API["pods"]["complete"][0]), node=running.node)
    lost = lost_pods([running, ended], [node(**NO_ANSWER)])
    assert list(lost) == [running.uid]
    assert "has not answered since 2026-11-21T10:00:00Z" in lost[running.uid]
    expected = {running.uid: "its node follow-0 no longer exists; Kubernetes replaces the pod within a minute"}
    assert lost_pods([running, ended], []) == expected
