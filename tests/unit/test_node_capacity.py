"""Computed capacity of EKS and GKE nodes, compared with the values of real nodes."""

from __future__ import annotations

import pytest

from infra.hardware.ec2 import EC2_MACHINES, ec2_machine
from infra.hardware.gce import GCE_MACHINES, gce_machine
from infra.hardware.machines import MachineType, reserved_millicores
from infra.hardware.node_capacity import (
    eks_allocatable,
    eks_capacity,
    eks_pods,
    gke_allocatable,
    gke_capacity,
    interface_pods,
)
from simulation.cluster.effects import gke_nodes
from tests.rehearsal.valid_inputs import T4_POOL

KIB, MIB, GIB = 2**10, 2**20, 2**30

REPORTED_CAPACITY = [
    # Type, bytes that a node reported, source.
    ("g5.8xlarge", 130461372 * KIB, "aws/aws-k8s-tester pull request 471"),
    ("r7i.xlarge", 33089273856, "2i2c-org/infrastructure 63cd17e node-capacity-info.json"),
    ("r7i.4xlarge", 132918992896, "2i2c-org/infrastructure 63cd17e node-capacity-info.json"),
    ("p5.48xlarge", 2097112716 * KIB, "aws-samples/aws-do-eks"),
]
REPORTED_ALLOCATABLE = [
    # Type, True if the node had EFA's huge pages, bytes that the node reported, source.
    ("g5.8xlarge", False, 127462076 * KIB, "aws/aws-k8s-tester pull request 471"),
    ("r7i.xlarge", False, 32048037888, "2i2c-org/infrastructure 63cd17e node-capacity-info.json"),
    ("r7i.4xlarge", False, 129847705600, "2i2c-org/infrastructure 63cd17e node-capacity-info.json"),
    ("g6.4xlarge", False, 58981 * MIB, "pytorch/ci-infra pull request 1082"),
    ("p4de.24xlarge", True, 1146004920 * KIB, "aws-samples/aws-do-eks"),
]


@pytest.mark.parametrize(("name", "reported", "_source"), REPORTED_CAPACITY)
def test_eks_capacity_is_at_most_one_percent_below_a_real_node(name: str, reported: int, _source: str) -> None:
    assert 0.99 * reported < eks_capacity(ec2_machine(name)).memory <= reported


@pytest.mark.parametrize(("name", "fabric", "reported", "_source"), REPORTED_ALLOCATABLE)
def test_eks_allocatable_is_at_most_one_percent_below_a_real_node(
    name: str, fabric: bool, reported: int, _source: str
) -> None:
    assert 0.99 * reported < eks_allocatable(ec2_machine(name), fabric=fabric).memory <= reported


@pytest.mark.parametrize(
    ("name", "pods"),
    # nodeadm/internal/kubelet/instance-info.jsonl: interfaces x (addresses - 1) + 2.
    [("m7i.large", 29), ("g4dn.12xlarge", 234), ("g5.48xlarge", 345), ("p4d.24xlarge", 737), ("p5en.48xlarge", 198)],
)
def test_eks_allocatable_reserves_memory_for_each_pod_that_interfaces_allow(name: str, pods: int) -> None:
    machine = ec2_machine(name)
    assert interface_pods(machine) == pods
    kept = eks_capacity(machine).memory - eks_allocatable(machine).memory
    assert kept == (255 + 11 * pods + 100) * MIB, "255 MiB and 11 MiB per pod for EKS, 100 MiB for eviction"


def test_eks_allocatable_is_below_capacity_for_every_type() -> None:
    for machine in EC2_MACHINES.values():
        assert 29 <= eks_pods(machine) <= 110
        left = eks_allocatable(machine, fabric=machine.efa_interfaces > 0)
        assert 0 < left.memory < eks_capacity(machine).memory < machine.capacity.memory


def test_eks_allocatable_with_fabric_excludes_huge_pages() -> None:
    machine = ec2_machine("p5.48xlarge")
    huge_pages = eks_allocatable(machine).memory - eks_allocatable(machine, fabric=True).memory
    assert huge_pages == 42242 * MIB


REPORTED_GKE_ALLOCATABLE = [
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
    ("machine", "millicores", "memory"),
    [pytest.param(*row, id=f"{row[0].name}-{row[2]}") for row in REPORTED_GKE_ALLOCATABLE],
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
    [node, *_] = gke_nodes(T4_POOL, 1)
    machine = gce_machine(T4_POOL["nodeConfig"]["machineType"])
    assert node["status"]["allocatable"]["memory"] == str(gke_allocatable(machine).memory)
    assert node["status"]["capacity"]["memory"] == str(gke_capacity(machine).memory)


@pytest.mark.parametrize(
    ("vcpus", "millicores"),
    # https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes#cpu_reservations
    [(1, 60), (2, 70), (3, 75), (4, 80), (5, 82), (8, 90), (16, 110), (96, 310)],
)
def test_reserved_cpu_has_the_documented_shares(vcpus: int, millicores: int) -> None:
    assert reserved_millicores(vcpus) == millicores
