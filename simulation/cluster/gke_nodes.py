"""Nodes of a GKE node pool in the API server: labels, taints, capacity and allocatable. Pure."""

from __future__ import annotations

from typing import Any

from infra.hardware.node_capacity import gke_allocatable, gke_capacity
from simulation.cloud.findings import at
from simulation.cloud.gcp import node_pools as rules
from simulation.cloud.state import Properties
from simulation.cluster.node import node

_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
_POOL = "cloud.google.com/gke-nodepool"


def labels(pool: Properties) -> dict[str, str]:
    """Return the labels of each node of a pool, except for those with its zone and its name.

    https://cloud.google.com/kubernetes-engine/docs/concepts/node-pools, .../how-to/gpus, .../how-to/tpus, .../spot-vms
    """
    config = pool.get("nodeConfig") or {}
    machine = config.get("machineType") or "e2-medium"
    found = {
        _POOL: str(pool["name"]),
        "node.kubernetes.io/instance-type": machine,
        "cloud.google.com/machine-family": machine.partition("-")[0],
        "cloud.google.com/gke-os-distribution": "cos",
        "cloud.google.com/gke-container-runtime": "containerd",
        "cloud.google.com/gke-boot-disk": config.get("diskType") or "pd-balanced",
        "cloud.google.com/gke-max-pods-per-node": str(pool.get("maxPodsPerNode") or 110),
        "cloud.google.com/gke-provisioning": "spot" if config.get("spot") else "standard",
    }
    if at(config, "workloadMetadataConfig.mode") == "GKE_METADATA":
        found["iam.gke.io/gke-metadata-server-enabled"] = "true"
    for key, name in (("spot", "gke-spot"), ("flexStart", "gke-flex-start"), ("preemptible", "gke-preemptible")):
        if config.get(key):
            found[f"cloud.google.com/{name}"] = "true"
    if reserved := at(config, "reservationAffinity.values"):
        found["cloud.google.com/reservation-name"] = str(reserved[0]).split("/")[0]
    gpu, _ = rules.gpus_of(pool)
    if gpu:
        driver = at(config, "guestAccelerators.gpuDriverInstallationConfig.gpuDriverVersion") or "DEFAULT"
        found |= {"cloud.google.com/gke-accelerator": gpu, "cloud.google.com/gke-gpu-driver-version": driver.lower()}
    if tpu := rules.slice_of(pool):
        found |= {
            "cloud.google.com/gke-tpu-accelerator": tpu.gke_accelerator,
            "cloud.google.com/gke-tpu-topology": tpu.topology_label,
            "cloud.google.com/gke-accelerator-count": str(tpu.chips_per_host),
        }
    return {**found, **(config.get("labels") or {})}


def taints(pool: Properties, *, only_accelerators: bool) -> list[dict[str, str]]:
    """Return the taints of the pool's settings, and GKE's taints for accelerators.

    GKE adds no GPU taint if all pools have GPUs:
    https://github.com/GoogleCloudPlatform/container-engine-accelerators/issues/703

    https://cloud.google.com/kubernetes-engine/docs/how-to/gpus
    """
    given = at(pool, "nodeConfig.taints") or []
    found = [{"key": each["key"], "value": each["value"], "effect": _EFFECTS[each["effect"]]} for each in given]
    machine = rules.machine_of(pool)
    if rules.gpus_of(pool)[0] and not only_accelerators:
        found.append({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"})
    if machine and machine.tpu_chips:
        found.append({"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"})
    return found


def nodes(pool: Properties, count: int, *, only_accelerators: bool = False) -> list[dict[str, Any]]:
    """Return `count` Node objects of a pool, spread over its zones."""
    machine = rules.machine_of(pool)
    if machine is None:
        raise ValueError(f"machine type {at(pool, 'nodeConfig.machineType')} is not in the hardware table")
    _, gpus = rules.gpus_of(pool)
    accelerators = {"nvidia.com/gpu": gpus, "google.com/tpu": machine.tpu_chips}
    cluster = str(pool["cluster"]).rpartition("/")[2]
    made = []
    zones = rules.zones_of(pool)
    for place, zone in enumerate(zones):
        for index in range(len(range(place, count, len(zones)))):
            made.append(
                node(
                    name=f"gke-{cluster}-{pool['name']}-{zone.rpartition('-')[2]}-{index}",
                    labels=labels(pool),
                    zone=zone,
                    region=zone.rpartition("-")[0],
                    provider_id=f"gce://{pool['project']}/{zone}/gke-{cluster}-{pool['name']}-{index}",
                    taints=taints(pool, only_accelerators=only_accelerators),
                    machine=machine,
                    capacity=gke_capacity(machine),
                    allocatable=gke_allocatable(machine),
                    pods=int(pool.get("maxPodsPerNode") or 110),
                    disk_gb=int(at(pool, "nodeConfig.diskSizeGb") or 100),
                    accelerators={key: value for key, value in accelerators.items() if value},
                )
            )
    return made
