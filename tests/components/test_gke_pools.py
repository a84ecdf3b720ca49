"""Node pools of a GKE platform: slices, provisioning models, and the networks between their hosts."""

from __future__ import annotations

from typing import Any

import pytest

from tests.components.cloud_program import A3, gke, graph, pool, pools
from tests.recording import RecordingEngine

TPU_V4 = {"accelerator": "v4-32", "platform_zone": "us-central2-b"}


def cluster_of(engine: RecordingEngine) -> dict[str, Any]:
    """Return the control plane of a graph."""
    (record,) = engine.of_type("cluster:Cluster")
    return record.inputs


def test_gke_pool_of_multi_host_slice_has_topology_and_hosts() -> None:
    found = pool(**TPU_V4, capacity="spot")
    assert found["placementPolicy"] == {"type": "COMPACT", "tpuTopology": "2x2x4"}
    assert (found["nodeCount"], found["nodeConfig"]["machineType"]) == (4, "ct4p-hightpu-4t")
    assert found["nodeConfig"]["spot"] is True
    assert found["nodeLocations"] == ["us-central2-b"]
    assert "guestAccelerators" not in found["nodeConfig"]


def test_gke_cluster_in_a_zone_without_e2_has_n1_nodes() -> None:
    engine, _ = graph(gke({"accelerator": "v4-32"}, zone="us-central2-b"))
    assert cluster_of(engine)["nodeConfig"]["machineType"] == "n1-standard-8"


def test_gke_pool_autoscaled_slice_has_zonal_limits_and_gpus_have_total_limits() -> None:
    scaling = pool(**TPU_V4, min_nodes=0)["autoscaling"]
    assert scaling == {"minNodeCount": 0, "maxNodeCount": 4, "locationPolicy": "ANY"}
    gpus = pool(min_nodes=0)["autoscaling"]
    assert gpus == {"totalMinNodeCount": 0, "totalMaxNodeCount": 2, "locationPolicy": "ANY"}


def test_gke_pool_autoscaled_starts_within_maximum() -> None:
    zones = ["us-central1-a", "us-central1-b"]
    initial = {minimum: pool(nodes=3, min_nodes=minimum, zones=zones)["initialNodeCount"] for minimum in range(4)}
    # `initialNodeCount` is the number of nodes in each zone.
    assert initial == {0: 0, 1: 1, 2: 1, 3: 1}


def test_gke_pool_single_host_slice_has_no_topology() -> None:
    found = pool(accelerator="v5litepod-8", platform_zone="us-west4-a", slices=3)
    assert "placementPolicy" not in found
    assert (found["nodeCount"], found["nodeConfig"]["machineType"]) == (3, "ct5lp-hightpu-8t")


def test_gke_multi_host_slices_have_one_pool_each() -> None:
    found = pools(gke({"accelerator": "v6e-16", "slices": 2}, zone="us-east5-a"))
    assert {name: inputs["nodeCount"] for name, inputs in found.items()} == {"pool-0": 4, "pool-0-1": 4}


def test_gke_pool_ironwood_has_workload_policy() -> None:
    engine, _ = graph(gke({"accelerator": "v7x", "topology": "2x4x4"}, zone="us-central1-c"))
    (policy,) = engine.of_type("resourcePolicy:ResourcePolicy")
    assert policy.inputs["workloadPolicy"] == {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "2x4x4"}
    (found,) = (record for record in engine.of_type("nodePool:NodePool") if record.inputs["name"] == "pool-0")
    assert found.inputs["placementPolicy"] == {"type": "COMPACT", "policyName": policy.inputs["name"]}


def test_gke_pool_with_new_topology_is_replaced() -> None:
    engine, _ = graph(gke({"accelerator": "v4-32"}, zone="us-central2-b"))
    replacing = engine.requests["pool-0-nodes"].replaceOnChanges
    assert list(replacing) == ["placementPolicy", "nodeConfig.machineType"]
    gpus, _ = graph(gke())
    assert list(gpus.requests["gpus-nodes"].replaceOnChanges) == ["placementPolicy"]


def test_gke_workload_policy_with_new_name_is_replaced() -> None:
    engine, _ = graph(gke({"accelerator": "v7x", "topology": "2x4x4"}, zone="us-central1-c"))
    assert list(engine.requests["pool-0-workload-policy"].replaceOnChanges) == ["name"]


@pytest.mark.parametrize("capacity", ["flex-start", "queued"])
def test_gke_pool_flex_start_or_queued_has_no_upgrade_settings(capacity: str) -> None:
    assert "upgradeSettings" not in pool(**A3, nodes=1, capacity=capacity)
    assert pool(**A3, nodes=1)["upgradeSettings"]["strategy"] == "SURGE"


def test_gke_pool_flex_start_has_maximum_duration_and_no_reservation_or_repair() -> None:
    found = pool(**A3, nodes=1, capacity="flex-start")
    config = found["nodeConfig"]
    assert (config["flexStart"], config["maxRunDuration"]) == (True, "604800s")
    assert config["reservationAffinity"] == {"consumeReservationType": "NO_RESERVATION"}
    assert found["management"] == {"autoRepair": False, "autoUpgrade": True}
    assert found["autoscaling"]["totalMinNodeCount"] == 0
    assert "placementPolicy" not in found
    assert pool(**A3, nodes=1)["management"]["autoRepair"] is True


def test_gke_pool_queued_has_label_and_taint() -> None:
    found = pool(**A3, nodes=1, capacity="queued")
    assert found["queuedProvisioning"] == {"enabled": True}
    assert found["nodeConfig"]["labels"]["cloud.google.com/gke-queued"] == "true"
    assert found["nodeConfig"]["taints"] == [
        {"key": "cloud.google.com/gke-queued", "value": "true", "effect": "NO_SCHEDULE"}
    ]


def test_gke_pool_with_reservation_block_names_the_block() -> None:
    name = "projects/p/reservations/r/reservationBlocks/b/reservationSubBlocks/s"
    assert pool(**A3, capacity=f"reservation:{name}")["nodeConfig"]["reservationAffinity"] == {
        "consumeReservationType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": [name],
    }


def test_gke_fallback_order_is_compute_class() -> None:
    platform = gke({**A3, "nodes": 1, "capacity": ["reservation:r", "flex-start", "spot"]})
    engine, _ = graph(platform)
    (compute_class,) = engine.of_type("ComputeClass")
    names = ["pool-0-0-reservation", "pool-0-1-flex-start", "pool-0-2-spot"]
    assert compute_class.inputs["spec"]["priorities"] == [{"nodepools": [name]} for name in names]
    for name, inputs in pools(platform).items():
        assert inputs["nodeConfig"]["labels"]["cloud.google.com/compute-class"] == "pool-0", name
        assert inputs["nodeConfig"]["taints"][0]["value"] == "pool-0"
        assert inputs["autoscaling"]["totalMinNodeCount"] == 0


def test_gke_fallback_order_across_zones_has_pool_per_zone() -> None:
    platform = gke(
        {"accelerator": "v6e-16", "capacity": ["flex-start", "spot"], "zones": ["us-east5-a", "us-east5-b"]},
        zone="us-east5-a",
    )
    engine, _ = graph(platform)
    (compute_class,) = engine.of_type("ComputeClass")
    assert compute_class.inputs["spec"]["priorities"] == [
        {"nodepools": ["pool-0-0-flex-start-a", "pool-0-0-flex-start-b"]},
        {"nodepools": ["pool-0-1-spot-a", "pool-0-1-spot-b"]},
    ]
    assert all(len(inputs["nodeLocations"]) == 1 for inputs in pools(platform).values())


@pytest.mark.parametrize(
    ("machine", "zone", "vpcs", "interfaces", "mtu"),
    [
        ("a3-highgpu-8g", "us-central1-a", 4, 4, 8244),
        ("a3-megagpu-8g", "us-central1-a", 8, 8, 8244),
        ("a3-ultragpu-8g", "us-central1-b", 2, 9, 8896),
        ("a4-highgpu-8g", "us-central1-b", 2, 9, 8896),
    ],
)
def test_gke_fabric_has_networks_of_its_machine_type(
    machine: str, zone: str, vpcs: int, interfaces: int, mtu: int
) -> None:
    platform = gke({"machine_type": machine, "capacity": "spot"}, zone=zone)
    engine, _ = graph(platform)
    fabric_networks = [record for record in engine.of_type("network:Network") if record.name.startswith("fabric")]
    assert len(fabric_networks) == vpcs
    assert {record.inputs["mtu"] for record in fabric_networks} == {mtu}
    (found,) = pools(platform).values()
    assert len(found["networkConfig"]["additionalNodeNetworkConfigs"]) == interfaces
    assert len(engine.of_type("networking.gke.io/v1:Network")) == interfaces
    assert cluster_of(engine)["enableMultiNetworking"] is True
    ranges = [record.inputs["ipCidrRange"] for record in engine.of_type("subnetwork:Subnetwork")]
    assert len(set(ranges)) == len(ranges) == interfaces + 1
    profiles = [record.inputs["networkProfile"] for record in fabric_networks if "networkProfile" in record.inputs]
    assert all(profile.endswith(f"{zone}-vpc-roce") for profile in profiles)
    assert bool(profiles) == (mtu == 8896)


def test_gke_fabric_pool_depends_on_networks_through_cluster() -> None:
    engine, _ = graph(gke({"machine_type": "a3-megagpu-8g"}))
    depends = engine.requests["pool-0-nodes"].propertyDependencies
    assert not [urn for urn in depends["networkConfig"].urns if "fabric" in urn]
    subnets = {urn.rpartition("::")[2] for urn in depends["cluster"].urns if ":Subnetwork::" in urn}
    assert subnets == {f"fabric-gpu-nic-{index}" for index in range(8)}
    (found,) = pools(gke({"machine_type": "a3-megagpu-8g"})).values()
    configs = found["networkConfig"]["additionalNodeNetworkConfigs"]
    created = {record.inputs["name"] for record in engine.of_type("subnetwork:Subnetwork") if "fabric" in record.name}
    assert {each["subnetwork"] for each in configs} == created


def test_gke_fabric_firewall_is_replaced_with_network() -> None:
    engine, _ = graph(gke({"machine_type": "a3-megagpu-8g"}))
    assert list(engine.requests["fabric-gpu-nic-0-inside"].replaceOnChanges) == ["network"]


def test_gke_multi_networking_is_on_for_a3_and_is_never_turned_off() -> None:
    a3, _ = graph(gke({**A3, "nodes": 1}))
    assert cluster_of(a3)["enableMultiNetworking"] is True
    assert list(a3.requests["cluster-control-plane"].ignoreChanges) == ["nodeConfig"]
    t4, _ = graph(gke())
    assert "enableMultiNetworking" not in cluster_of(t4)
    assert list(t4.requests["cluster-control-plane"].ignoreChanges) == ["nodeConfig", "enableMultiNetworking"]


def test_gke_pool_of_one_a3_host_has_no_additional_networks_or_placement_policy() -> None:
    found = pool(**A3, nodes=1)
    assert found["networkConfig"]["additionalNodeNetworkConfigs"] == []
    assert "placementPolicy" not in found
    assert pool(**A3)["placementPolicy"] == {"type": "COMPACT"}


def test_gke_pool_disk_depends_on_machine_type() -> None:
    assert pool(machine_type="a3-ultragpu-8g", capacity="spot", platform_zone="us-central1-b")["nodeConfig"][
        "diskType"
    ] == ("hyperdisk-balanced")
    assert pool(**A3)["nodeConfig"]["ephemeralStorageLocalSsdConfig"] == {"localSsdCount": 16}
