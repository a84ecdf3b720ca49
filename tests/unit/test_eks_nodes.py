"""Computed capacity of EKS nodes, compared with values that real nodes reported: within one percent, and never more."""

from __future__ import annotations

import pytest

from infra.hardware.ec2 import EC2_MACHINES, ec2_machine
from infra.hardware.node_capacity import eks_allocatable, eks_capacity, eks_pods, interface_pods

MEBIBYTE = 2**20
REPORTED_CAPACITY = [
    # Type, bytes that a node reported, source.
    ("g5.8xlarge", 130461372 * 1024, "aws/aws-k8s-tester pull request 471"),
    ("r7i.xlarge", 33089273856, "2i2c-org/infrastructure 63cd17e node-capacity-info.json"),
    ("r7i.4xlarge", 132918992896, "2i2c-org/infrastructure 63cd17e node-capacity-info.json"),
    ("p5.48xlarge", 2097112716 * 1024, "aws-samples/aws-do-eks"),
]
REPORTED_ALLOCATABLE = [
    # Type, True if it had EFA's huge pages, bytes, source.
    ("g5.8xlarge", False, 127462076 * 1024, "aws/aws-k8s-tester pull request 471"),
    ("r7i.xlarge", False, 32048037888, "2i2c-org/infrastructure 63cd17e node-capacity-info.json"),
    ("r7i.4xlarge", False, 129847705600, "2i2c-org/infrastructure 63cd17e node-capacity-info.json"),
    ("g6.4xlarge", False, 58981 * MEBIBYTE, "pytorch/ci-infra pull request 1082"),
    ("p4de.24xlarge", True, 1146004920 * 1024, "aws-samples/aws-do-eks"),
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
def test_eks_allocatable_reserves_memory_for_pods_of_interfaces(name: str, pods: int) -> None:
    machine = ec2_machine(name)
    assert interface_pods(machine) == pods
    kept = eks_capacity(machine).memory - eks_allocatable(machine).memory
    assert kept == (255 + 11 * pods + 100) * MEBIBYTE


def test_eks_allocatable_is_below_capacity_for_every_type() -> None:
    for machine in EC2_MACHINES.values():
        assert 29 <= eks_pods(machine) <= 110
        left = eks_allocatable(machine, fabric=machine.efa_interfaces > 0)
        assert 0 < left.memory < eks_capacity(machine).memory < machine.capacity.memory


def test_eks_allocatable_with_fabric_excludes_huge_pages() -> None:
    machine = ec2_machine("p5.48xlarge")
    taken = eks_allocatable(machine).memory - eks_allocatable(machine, fabric=True).memory
    assert taken == 42242 * MEBIBYTE
