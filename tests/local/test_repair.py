"""Times at which a node is taken out of service and put back into service."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra.local.repair import MAX_SILENT_SECONDS, TAINT, Step, step_for
from workloads.pod import LOST_NODE_SECONDS

NOW = datetime(2026, 11, 23, 4, 0, 0, tzinfo=UTC)
UNREACHABLE = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute"}


def node(status: str, seconds: float, *taints: Any) -> dict[str, Any]:
    """Return a node that has been ready, not ready or silent for some seconds."""
    since = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")
    ready = {"type": "Ready", "status": status, "lastTransitionTime": since}
    return {"spec": {"taints": [*taints]} if taints else {}, "status": {"conditions": [ready]}}


@pytest.mark.parametrize(
    ("found", "kubelet", "step"),
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
        (node("True", 1, TAINT), True, "take in again"),
        ({"spec": {}, "status": {}}, True, "nothing"),
    ],
)
def test_what_is_done_about_a_node(found: dict[str, Any], kubelet: bool, step: Step) -> None:
    assert step_for(found, NOW, lambda: kubelet) == step


def test_no_node_with_a_kubelet_is_ended_while_jobs_bear_its_silence() -> None:
    assert MAX_SILENT_SECONDS > LOST_NODE_SECONDS
