"""Computed capacity of GKE nodes, compared with values that real nodes reported."""

from __future__ import annotations

import pytest

from infra.hardware.gce import GCE_MACHINES, gce_machine
from infra.hardware.machines import MachineType
from infra.hardware.node_capacity import gke_allocatable, gke_capacity
from simulation.cluster import gke_nodes
from tests.rehearsal.good_inputs import T4_POOL

KIB, GIB = 2**10, 2**30

MEASURED = [
    # Machine, allocatable millicores and bytes that a node reported.
    # GKE v1.36.3-gke.1767000, Container-Optimized OS, kernel 6.12: `kubectl describe node`, October 2026.
    (gce_machine("n2-standard-4"), 3920, 13_591_652 * KIB),
    # The example of https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes.
    (gce_machine("e2-standard-4"), 3920, 13_498_416 * KIB),
    # 2i2c-org/infrastructure 1097ae3, deployer/commands/generate/resource_allocation/node-capacity-info.json.
    (gce_machine("n2-highmem-4"), 3920, 29_783_904_256),
    (gce_machine("n2-highmem-32"), 31850, 257_783_492_608),
    (gce_machine("n1-highmem-4"), 3920, 23_829_102_592),
]


@pytest.mark.parametrize(
    ("machine", "millicores", "memory"), [pytest.param(*row, id=f"{row[0].name}-{row[2]}") for row in MEASURED]
)
def test_gke_allocatable_is_at_most_one_percent_below_a_real_node(
    machine: MachineType, millicores: int, memory: int
) -> None:
    found = gke_allocatable(machine)
    assert found.millicores == millicores
    assert 0.99 * memory <= found.memory <= memory


@pytest.mark.parametrize(
    ("name", "gibibytes"),
    # KubeDB's documentation, guides on NodeTopology: allocatable of GKE's N1 machines.
    [("n1-standard-8", 25.89), ("n1-standard-16", 53.57), ("n1-standard-32", 109.03), ("n1-standard-64", 224.45)],
)
def test_gke_allocatable_is_below_published_n1_nodes(name: str, gibibytes: float) -> None:
    assert gke_allocatable(gce_machine(name)).memory <= gibibytes * GIB


def test_gke_allocatable_is_below_capacity_for_every_type() -> None:
    for machine in GCE_MACHINES.values():
        found, capacity = gke_allocatable(machine), gke_capacity(machine)
        assert 0 < found.millicores < capacity.millicores
        assert 0 < found.memory < capacity.memory < machine.capacity.memory


def test_gke_allocatable_equals_simulated_node() -> None:
    [node, *_] = gke_nodes.nodes(T4_POOL, 1)
    machine = gce_machine(T4_POOL["nodeConfig"]["machineType"])
    assert node["status"]["allocatable"]["memory"] == str(gke_allocatable(machine).memory)
    assert node["status"]["capacity"]["memory"] == str(gke_capacity(machine).memory)
