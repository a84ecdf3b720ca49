"""Action of each resource after a change of settings: update, recycling of nodes, or replacement.

The expected actions come from runs of Google's provider and from the source of AWS's provider.
"""

from __future__ import annotations

import functools
import json
from dataclasses import replace
from typing import Any

import pytest

from commands.review.plan import Step, difference
from commands.review.recorded import Record, record_program

POOL = {"name": "gpus"}
A3 = {"name": "gpus", "machine_type": "a3-highgpu-8g"}
V4 = {"name": "gpus", "accelerator": "v4", "topology": "2x2x4", "check_zones": False}
V6E = {"name": "gpus", "accelerator": "v6e", "topology": "2x2", "check_zones": False}
N1 = {"name": "gpus", "machine_type": "n1-standard-8", "accelerator": "nvidia-tesla-t4", "accelerators_per_node": 1}
A, AB = ["us-central1-a"], ["us-central1-a", "us-central1-b"]
KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
CLUSTER = "cluster-control-plane"
STREAMING = {"services-containerfilesystem": "delete", "nodes-image-streaming": "delete"}
"""Actions if image streaming is turned off. The API stays enabled, although Pulumi deletes its resource."""
ALL_IN_CLUSTER = {CLUSTER: "replace", "system-nodes": "replace", "gpus-nodes": "replace", "jobs-user": "replace"}
"""Actions if the cluster and everything in it are replaced."""


@functools.cache
def recording(kind: str, platform: str) -> list[Record]:
    """Return the resources that the program registers for a platform's settings in JSON."""
    project = {"project": "some-project"} if kind == "gke" else {}
    return record_program({"platform": {"kind": kind, **project, **json.loads(platform)}, "jobs": []}, ())


def steps(kind: str, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Step]:
    """Return the step of each resource that changes in the cloud, by name."""
    old, new = (recording(kind, json.dumps(each)) for each in (before, after))
    found = [each for each in difference(old, new) if each.type.startswith(("gcp:", "aws:")) and each.action != "same"]
    return {each.name: each for each in found}


def pools(*given: dict[str, Any]) -> dict[str, Any]:
    """Return a platform's settings with these pools."""
    return {"pools": list(given)}


Case = tuple[dict[str, Any], dict[str, Any], dict[str, str]]
"""Settings before and after a change, and the action of each resource that changes."""


def case_id(case: Case) -> str:
    """Return the path of the only setting that changes, such as `pools.nodes`."""
    before, after, _ = case
    path = []
    while True:
        (key,) = [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]
        path.append(key)
        before, after = (_section(each.get(key)) for each in (before, after))
        if not (before or after):
            return ".".join(path)


def _section(value: Any) -> dict[str, Any]:
    """Return the value if it is a section of settings, the first section of a list, else an empty section."""
    first = value[0] if isinstance(value, list) else value
    return first if isinstance(first, dict) else {}


GKE: list[Case] = [
    (pools(N1), pools({**N1, "nodes": 3}), {"gpus-nodes": "update"}),
    (pools(N1), pools({**N1, "machine_type": "n1-standard-16"}), {"gpus-nodes": "recycle"}),
    (pools(N1), pools({**N1, "accelerator": "nvidia-tesla-v100"}), {"gpus-nodes": "replace"}),
    (pools(N1), pools({**N1, "gpu_driver": "default"}), {"gpus-nodes": "replace"}),
    (pools(N1), pools({**N1, "disk_size_gb": 200}), {"gpus-nodes": "recycle"}),
    (pools(N1), pools({**N1, "capacity": "spot"}), {"gpus-nodes": "replace"}),
    (pools(N1), pools({**N1, "min_nodes": 0}), {"gpus-nodes": "update"}),
    (pools({**N1, "min_nodes": 0}), pools({**N1, "min_nodes": 1}), {"gpus-nodes": "update"}),
    (pools({**N1, "min_nodes": 0}), pools(N1), {"gpus-nodes": "update"}),
    (pools({**N1, "zones": AB}), pools({**N1, "zones": A}), {"gpus-nodes": "recycle"}),
    (pools({**N1, "zones": A}), pools({**N1, "zones": AB}), {"gpus-nodes": "recycle"}),
    (pools({**N1, "zones": A, "min_nodes": 0}), pools({**N1, "zones": AB, "min_nodes": 0}), {"gpus-nodes": "update"}),
    (
        {"regional": True, "zone": "us-central1-a"},
        {"regional": True, "zone": "us-central1-b"},
        {"system-nodes": "recycle", "gpus-nodes": "recycle"},
    ),
    ({}, {"system_pool": {"nodes": 2}}, {"system-nodes": "update"}),
    ({}, {"system_pool": {"machine_type": "e2-standard-8"}}, {"system-nodes": "recycle"}),
    (pools(A3), pools({**A3, "compact": False}), {"gpus-nodes": "replace"}),
    (pools(V4), pools({**V4, "topology": "2x4x4"}), {"gpus-nodes": "replace"}),
    (pools(V4), pools({**V4, "disk_size_gb": 200}), {"gpus-nodes": "recycle"}),
    (pools(V4), pools({**V4, "slices": 2}), {"gpus-1-nodes": "create"}),
    (pools(V6E), pools({**V6E, "topology": "2x4"}), {"gpus-nodes": "replace"}),
    ({}, {"network": {"nodes": "10.1.0.0/20"}}, {"network-subnet": "replace", **ALL_IN_CLUSTER}),
    ({"network": {"nodes": "10.8.0.0/20"}}, {"network": {"nodes": "10.8.0.0/19"}}, {"network-subnet": "update"}),
    ({}, {"network": {"pods": "10.68.0.0/14"}}, {"network-subnet": "update"}),
    ({}, {"network": {"control_plane": "172.16.1.0/28"}}, ALL_IN_CLUSTER),
    ({}, {"zone": "us-central1-b"}, ALL_IN_CLUSTER),
    ({}, {"release_channel": "RAPID"}, {CLUSTER: "update"}),
    ({}, {"authorized_networks": ["198.51.100.0/24"]}, {CLUSTER: "update"}),
    ({}, {"secrets_key": KEY}, {CLUSTER: "update"}),
    ({"secrets_key": KEY}, {}, {CLUSTER: "update"}),
    ({}, {"image_streaming": False}, {**STREAMING, "system-nodes": "recycle", "gpus-nodes": "recycle"}),
    ({}, {"bucket": {"location": "us"}}, {"gke-dist-bucket": "replace", "bucket-jobs": "replace"}),
    ({}, {"registry": {"keep_images": 5}}, {"registry-repository": "update"}),
]
ADDONS = (
    "vpc-cni",
    "kube-proxy",
    "eks-pod-identity-agent",
    "coredns",
    "eks-node-monitoring-agent",
    "aws-ebs-csi-driver",
)
EKS_CLUSTER = {
    "cluster-eks": "replace",
    "system-nodes": "replace",
    "gpus-nodes": "replace",
    "jobs-association": "replace",
}
EFA = {"name": "gpus", "machine_type": "g5.8xlarge", "zones": ["us-west-2a"], "efa": True}
EKS: list[Case] = [
    (
        {},
        {"network": {"services": "172.21.0.0/16"}},
        {
            **EKS_CLUSTER,
            **{f"cluster-addon-{name}": "replace" for name in ADDONS},
            "system-template": "update",
            "gpus-template": "update",
        },
    ),
    (
        {},
        {"system_pool": {"machine_type": "m7i.xlarge"}},
        {"system-template": "update", "system-nodes": "replace"},
    ),
    (pools(POOL), pools({**POOL, "nodes": 3}), {"gpus-nodes": "update"}),
    (pools(POOL), pools({**POOL, "capacity": "spot"}), {"gpus-nodes": "replace"}),
    (pools(POOL), pools({**POOL, "disk_size_gb": 200}), {"gpus-template": "update", "gpus-nodes": "recycle"}),
    (pools(POOL), pools({**POOL, "disk_type": "io2"}), {"gpus-template": "update", "gpus-nodes": "recycle"}),
    (
        pools(EFA),
        pools({**EFA, "placement_group": False}),
        {"gpus-placement": "delete", "gpus-template": "update", "gpus-nodes": "recycle"},
    ),
    ({"registry": {"keep_images": 9}}, {"registry": {"keep_images": 5}}, {"registry-lifecycle": "replace"}),
    ({}, {"addon_versions": {"coredns": "v1.12.3-eksbuild.1"}}, {"cluster-addon-coredns": "update"}),
    ({"addon_versions": {"coredns": "v1.12.3-eksbuild.1"}}, {}, {}),
    ({}, {"log_days": 7}, {"cluster-logs": "update"}),
]


def outcome(step: Step) -> str:
    """Return the step's action, or `recycle` for an update that replaces nodes."""
    return "recycle" if step.recycles else step.action


@pytest.mark.parametrize(("before", "after", "expected"), GKE, ids=map(case_id, GKE))
def test_difference_gke_change_has_the_providers_actions(
    before: dict[str, Any], after: dict[str, Any], expected: dict[str, str]
) -> None:
    assert {name: outcome(each) for name, each in steps("gke", before, after).items()} == expected


@pytest.mark.parametrize(("before", "after", "expected"), EKS, ids=map(case_id, EKS))
def test_difference_eks_change_has_the_providers_actions(
    before: dict[str, Any], after: dict[str, Any], expected: dict[str, str]
) -> None:
    assert {name: outcome(each) for name, each in steps("eks", before, after).items()} == expected


def test_difference_new_vpc_range_updates_gateway_and_cluster_and_replaces_the_rest() -> None:
    found = {name: outcome(each) for name, each in steps("eks", {}, {"network": {"vpc": "10.1.0.0/16"}}).items()}
    assert found["network-internet"] == found["cluster-eks"] == "update"
    assert found["network-vpc"] == found["network-nat-us-west-2a"] == found["gpus-nodes"] == "replace"


def test_difference_other_zones_update_cluster_and_endpoints_and_replace_system_nodes() -> None:
    found = {name: outcome(each) for name, each in steps("eks", {}, {"zones": ["us-west-2a", "us-west-2d"]}).items()}
    assert found["cluster-eks"] == found["network-ecr.api"] == found["network-s3"] == "update"
    assert found["system-nodes"] == "replace"


NODES = Record("gcp:container/nodePool:NodePool", "pool", {"name": "pool", "cluster": "c", "initialNodeCount": 1})


def step_of_change(before: Record, **inputs: Any) -> Step:
    """Return the step of a resource after a change of some inputs."""
    (step,) = difference([before], [replace(before, inputs={**before.inputs, **inputs})])
    return step


def test_difference_ignore_changes_suppresses_replacement() -> None:
    assert step_of_change(NODES, initialNodeCount=2).action == "replace"
    assert step_of_change(replace(NODES, ignore_changes=("initialNodeCount",)), initialNodeCount=2).action == "same"


def test_difference_replace_on_changes_turns_update_into_replacement() -> None:
    placed = replace(NODES, inputs={**NODES.inputs, "placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x4"}})
    change = {"placementPolicy": {"type": "COMPACT", "tpuTopology": "2x4x4"}}
    assert step_of_change(placed, **change).action == "update"
    assert step_of_change(replace(placed, replace_on_changes=("placementPolicy",)), **change).action == "replace"


def test_difference_firewall_of_replaced_network_is_updated_in_place() -> None:
    network = Record("gcp:compute/network:Network", "net", {"name": "net", "mtu": 1460}, outputs={"id": "net-id"})
    urn = "urn:pulumi:test::trainyard::gcp:compute/network:Network::net"
    firewall = Record(
        "gcp:compute/firewall:Firewall", "inside", {"name": "inside", "network": "net-id"}, depends={"network": (urn,)}
    )
    after = replace(network, inputs={**network.inputs, "autoCreateSubnetworks": False})
    found = {each.name: each.action for each in difference([network, firewall], [after, firewall])}
    assert found == {"net": "replace", "inside": "update"}, "a firewall's network must change in place"


def test_difference_change_that_crashes_the_provider_reports_the_crash() -> None:
    subnet = Record(
        "gcp:compute/subnetwork:Subnetwork",
        "nic",
        {"name": "nic", "network": "vpc", "ipCidrRange": "10.0.0.0/20"},
        outputs={"id": "nic-id"},
    )
    urn = "urn:pulumi:test::trainyard::gcp:compute/subnetwork:Subnetwork::nic"
    config = {"additionalNodeNetworkConfigs": [{"network": "vpc", "subnetwork": "nic-id"}]}
    pool = Record(NODES.type, "pool", {**NODES.inputs, "networkConfig": config}, depends={"networkConfig": (urn,)})
    other = replace(subnet, inputs={**subnet.inputs, "ipCidrRange": "10.9.0.0/20"})
    found = {each.name: each for each in difference([subnet, pool], [other, pool])}
    assert "the provider crashes" in found["pool"].crash
