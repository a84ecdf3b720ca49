"""A node whose kubelet and containerd are killed: its pods are recreated, then the cluster restarts the node."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.local.settings import ClusterSettings
from tests.local.fault_jobs import KINDS
from tests.local.test_faults import running_jobs, wait_for
from tests.local.test_lost_node import LostNode

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(2400)]


@pytest.fixture(scope="module")
def dead_node(settings: ClusterSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LostNode]:
    """Yield a node without kubelet and containerd, with pods of each kind. Their containers keep running."""
    with running_jobs(settings, tmp_path_factory.mktemp("dead"), KINDS, ["node-dead"]) as stack:
        found = LostNode(settings, stack.core(), "node-dead")
        found.kill_programs()
        yield found


def test_dead_node_pods_are_recreated(dead_node: LostNode) -> None:
    wait_for("the node's silence is noticed", lambda: dead_node.silent_since() is not None)
    noticed = dead_node.silent_since()
    assert noticed is not None
    dead_node.wait_for_replacements()
    waited = [(made - noticed).total_seconds() for made in dead_node.replacement_times()]
    print("recreated", sorted(waited), "s after the node's silence was noticed")
    assert waited
    dead_node.complete_jobs()


def test_dead_node_is_restarted_and_schedulable(dead_node: LostNode) -> None:
    wait_for(f"{dead_node.node} is ready", lambda: dead_node.node in dead_node.ready())
    wait_for("the node accepts pods again", lambda: not dead_node.taints())
