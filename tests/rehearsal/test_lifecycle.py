"""Calls to a simulated cloud: creation, update and deletion of resources, rejected calls, and faults."""

import json
from pathlib import Path
from typing import Any

import pytest

from simulation.cloud import lifecycle
from simulation.cloud.lifecycle import Cloud, InitFailed, Rejected
from simulation.cloud.model import SimulatedResource, edit_state, new_state, read_state
from tests.rehearsal.valid_inputs import VALID_INPUTS

PROJECT = "some-project"
NETWORK, SUBNET = "gcp:compute/network:Network", "gcp:compute/subnetwork:Subnetwork"
API = {"project": PROJECT, "service": "compute.googleapis.com"}
VPC: dict[str, Any] = {"project": PROJECT, "name": "vpc"}
NODES: dict[str, Any] = {
    "project": PROJECT,
    "region": "us-central1",
    "name": "nodes",
    "network": "projects/some-project/global/networks/vpc",
    "ipCidrRange": "10.0.0.0/20",
}


def urn(name: str) -> str:
    """Return the URN of a resource."""
    return f"urn:pulumi:test::clouds::type::{name}"


def begin(folder: Path, fault: str = "") -> Cloud:
    """Return an empty cloud, with an injected fault if one is given."""
    new_state(folder, fault=fault)
    return Cloud(folder)


def with_api(folder: Path, fault: str = "") -> Cloud:
    """Return a cloud in which the API of networks is enabled."""
    cloud = begin(folder, fault)
    cloud.create(urn("api"), "gcp:projects/service:Service", API)
    return cloud


def with_network(folder: Path, fault: str = "") -> Cloud:
    """Return a cloud with a network."""
    cloud = with_api(folder, fault)
    cloud.create(urn("vpc"), NETWORK, VPC)
    return cloud


def test_create_without_an_enabled_api_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(Rejected, match=r"SERVICE_DISABLED.*compute\.googleapis\.com"):
        begin(tmp_path).create(urn("vpc"), NETWORK, VPC)


def test_create_with_a_missing_reference_is_rejected(tmp_path: Path) -> None:
    cloud = with_api(tmp_path)
    with pytest.raises(Rejected, match="networks/vpc does not exist"):
        cloud.create(urn("nodes"), SUBNET, NODES)


def test_create_with_an_existing_name_is_rejected(tmp_path: Path) -> None:
    cloud = with_network(tmp_path)
    with pytest.raises(Rejected, match="already exists"):
        cloud.create(urn("other"), NETWORK, VPC)


def test_delete_network_with_users_is_rejected(tmp_path: Path) -> None:
    cloud = with_network(tmp_path)
    vpc = f"projects/{PROJECT}/global/networks/vpc"
    subnet = cloud.create(urn("nodes"), SUBNET, NODES)
    with pytest.raises(Rejected, match=r"in use by .*subnetworks/nodes"):
        cloud.delete(urn("vpc"), NETWORK, vpc)
    cloud.delete(urn("nodes"), SUBNET, subnet.id)
    cloud.delete(urn("vpc"), NETWORK, vpc)
    assert cloud.read(NETWORK, vpc) is None


def test_delete_vpc_deletes_its_default_security_group(tmp_path: Path) -> None:
    cloud = begin(tmp_path)
    vpc = cloud.create(urn("vpc"), "aws:ec2/vpc:Vpc", {"region": "us-west-2", "cidrBlock": "10.0.0.0/16"})
    group = {"region": "us-west-2", "vpcId": vpc.id}
    cloud.create(urn("group"), "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup", group)
    cloud.delete(urn("vpc"), vpc.type, vpc.id)
    assert read_state(tmp_path).resources == {}


def test_create_overlapping_subnet_is_rejected(tmp_path: Path) -> None:
    cloud = with_network(tmp_path)
    cloud.create(urn("nodes"), SUBNET, NODES)
    with pytest.raises(Rejected, match="rule ranges-of-network"):
        cloud.create(urn("more"), SUBNET, {**NODES, "name": "more", "ipCidrRange": "10.0.8.0/24"})


def test_update_subnet_does_not_overlap_itself(tmp_path: Path) -> None:
    cloud, region = begin(tmp_path), {"region": "us-west-2"}
    vpc = cloud.create(urn("vpc"), "aws:ec2/vpc:Vpc", {**region, "cidrBlock": "10.0.0.0/16"})
    inputs = {**region, "vpcId": vpc.id, "cidrBlock": "10.0.0.0/20", "tags": {"Name": "nodes"}}
    subnet = cloud.create(urn("nodes"), "aws:ec2/subnet:Subnet", inputs)
    tags = {"Name": "nodes", "team": "vision"}
    assert cloud.update(urn("nodes"), subnet.type, subnet.id, {**inputs, "tags": tags}).outputs["tags"] == tags


def test_create_with_a_timeout_keeps_the_resource(tmp_path: Path) -> None:
    cloud = with_api(tmp_path, "timeout:network")
    with pytest.raises(InitFailed) as raised:
        cloud.create(urn("vpc"), NETWORK, VPC, timeout=60)
    assert cloud.read(NETWORK, raised.value.record.id) is not None


def test_slow_create_exceeds_the_timeout(tmp_path: Path) -> None:
    cloud = with_api(tmp_path, "slow:network")
    with pytest.raises(InitFailed):
        cloud.create(urn("vpc"), NETWORK, VPC, timeout=60)
    assert read_state(tmp_path).operations[-1].seconds == 20 * lifecycle.SLOW_FACTOR, "a network normally takes 20 s"


@pytest.mark.parametrize(("fault", "message"), [("denied:2", "PERMISSION_DENIED"), ("quota:network", "QUOTA_EXCEEDED")])
def test_fault_happens_once(tmp_path: Path, fault: str, message: str) -> None:
    cloud = with_api(tmp_path, fault)
    with pytest.raises(Rejected, match=message):
        cloud.create(urn("vpc"), NETWORK, VPC)
    cloud.create(urn("vpc"), NETWORK, VPC)


def test_crash_happens_after_the_creation(tmp_path: Path) -> None:
    new_state(tmp_path, fault="crash:network")
    seen = []
    cloud = Cloud(tmp_path, crash=lambda: seen.append(sorted(read_state(tmp_path).resources)))
    cloud.create(urn("api"), "gcp:projects/service:Service", API)
    cloud.create(urn("vpc"), NETWORK, VPC)
    assert f"{NETWORK} projects/{PROJECT}/global/networks/vpc" in seen[0]


def test_eventual_fault_hides_a_new_resource_once(tmp_path: Path) -> None:
    cloud = with_network(tmp_path, "eventual:network")
    with pytest.raises(Rejected, match=r"does not exist \(yet\)"):
        cloud.create(urn("nodes"), SUBNET, NODES)
    cloud.create(urn("nodes"), SUBNET, NODES)


def test_fault_with_a_name_hits_only_that_resource(tmp_path: Path) -> None:
    cloud = with_network(tmp_path, "stockout:subnetwork:gpus")
    cloud.create(urn("system-nodes"), SUBNET, NODES)
    with pytest.raises(Rejected, match="ZONE_RESOURCE_POOL_EXHAUSTED"):
        cloud.create(urn("gpus-nodes"), SUBNET, {**NODES, "name": "gpus"})


NODE_GROUP_TYPE = "aws:eks/nodeGroup:NodeGroup"


def with_cluster(folder: Path, fault: str) -> Cloud:
    """Return a cloud with the resources that the node group of VALID_INPUTS refers to."""
    cloud = begin(folder, fault)
    trust = json.dumps({"Statement": [{"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}}]})
    found: dict[str, tuple[str, dict[str, Any]]] = {
        "train": ("aws:eks/cluster:Cluster", {"name": "train"}),
        "nodes": ("aws:iam/role:Role", {"assumeRolePolicy": trust}),
        "subnet-1": ("aws:ec2/subnet:Subnet", {"availabilityZone": "us-west-2a"}),
        "lt-1": ("aws:ec2/launchTemplate:LaunchTemplate", {}),
    }
    with edit_state(folder) as state:
        for id_, (type_, inputs) in found.items():
            record = SimulatedResource(id=id_, type=type_, urn=urn(id_), inputs=inputs, outputs={**inputs, "arn": id_})
            state.resources[record.key] = record
    return cloud


def test_stockout_of_a_node_group_leaves_a_failed_group_that_cannot_change(tmp_path: Path) -> None:
    cloud, inputs = with_cluster(tmp_path, "stockout:nodegroup"), VALID_INPUTS[NODE_GROUP_TYPE]
    with pytest.raises(InitFailed, match="CREATE_FAILED") as raised:
        cloud.create(urn("gpus"), NODE_GROUP_TYPE, inputs)
    failed = raised.value.record
    assert "status" not in failed.outputs
    assert cloud.update(failed.urn, failed.type, failed.id, inputs).outputs["status"] == "CREATE_FAILED"
    with pytest.raises(Rejected, match="ResourceInUseException"):
        cloud.update(failed.urn, failed.type, failed.id, {**inputs, "labels": {"team": "vision"}})
    cloud.delete(failed.urn, failed.type, failed.id)
    assert cloud.create(urn("gpus"), NODE_GROUP_TYPE, inputs).outputs["status"] == "ACTIVE"


@pytest.mark.parametrize("fault", ["stockout:nodepool:gpus", "timeout:nodegroup:a-1", "denied:7", "crash:cluster", ""])
def test_check_fault_accepts_types_names_and_numbers(fault: str) -> None:
    lifecycle.check_fault(fault)


@pytest.mark.parametrize(
    "wrong",
    ["stockout", "stockout:", "flood:nodepool", "denied:often", "stockout:nodepool:", "stockout:nodepool:My_Pool"],
)
def test_check_fault_rejects_an_unknown_fault(wrong: str) -> None:
    with pytest.raises(ValueError, match="FAULT"):
        lifecycle.check_fault(wrong)


def test_update_launch_template_increments_its_latest_version(tmp_path: Path) -> None:
    cloud, template = begin(tmp_path), "aws:ec2/launchTemplate:LaunchTemplate"
    created = cloud.create(urn("t"), template, {"name": "t", "region": "us-west-2"})
    described = cloud.update(urn("t"), template, created.id, {**created.inputs, "description": "nodes"})
    assert described.outputs["latestVersion"] == 1
    changed = cloud.update(urn("t"), template, created.id, {**described.inputs, "userData": "Zm9v"})
    assert changed.outputs["latestVersion"] == 2
