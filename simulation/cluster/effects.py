"""Effects of simulated resources: clusters start a control plane, pools add nodes, and buckets use an object store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from infra.hardware import Capacity
from infra.hardware.ec2 import Ec2Machine
from infra.hardware.machines import MachineType
from infra.hardware.node_capacity import eks_allocatable, eks_capacity, eks_pods, gke_allocatable, gke_capacity
from infra.local.settings import KUBERNETES_VERSION
from simulation.cloud.aws import CLUSTER as EKS_CLUSTER
from simulation.cloud.aws import NODE_GROUP, SUBNET, TEMPLATE
from simulation.cloud.aws import machine_of as machine_of_group
from simulation.cloud.gcp import CLUSTER as GKE_CLUSTER
from simulation.cloud.gcp import NODE_POOL, POLICY, gpus_of, machine_of, nodes_per_zone, slice_of, zones_of
from simulation.cloud.lifecycle import Effects, Rejected
from simulation.cloud.model import CloudState, Properties, SimulatedResource, read_state, value_at
from simulation.cluster import control_plane
from simulation.cluster.control_plane import set_nodes, settings_of
from simulation.object_store import StoreError, store_of

GKE_POOL_LABEL = "cloud.google.com/gke-nodepool"
EKS_GROUP_LABEL = "eks.amazonaws.com/nodegroup"
ARCHITECTURE = "amd64"
"""Processor architecture of all machine types in infra/hardware."""
_KUBELET_VERSION = f"v{KUBERNETES_VERSION}"
_TAINT_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}
"""Effect of a taint in the clouds' APIs -> effect in Kubernetes."""


def gke_labels(pool: Properties) -> dict[str, str]:
    """Return the labels of a GKE pool's nodes, except those that `_node` adds.

    https://cloud.google.com/kubernetes-engine/docs/concepts/node-pools, .../how-to/gpus, .../how-to/tpus, .../spot-vms
    """
    config = pool.get("nodeConfig") or {}
    machine = config.get("machineType") or "e2-medium"
    found = {
        GKE_POOL_LABEL: str(pool["name"]),
        "node.kubernetes.io/instance-type": machine,
        "cloud.google.com/machine-family": machine.partition("-")[0],
        "cloud.google.com/gke-os-distribution": "cos",
        "cloud.google.com/gke-container-runtime": "containerd",
        "cloud.google.com/gke-boot-disk": config.get("diskType") or "pd-balanced",
        "cloud.google.com/gke-max-pods-per-node": str(pool.get("maxPodsPerNode") or 110),
        "cloud.google.com/gke-provisioning": "spot" if config.get("spot") else "standard",
    }
    if value_at(config, "workloadMetadataConfig.mode") == "GKE_METADATA":
        found["iam.gke.io/gke-metadata-server-enabled"] = "true"
    for key, name in (("spot", "gke-spot"), ("flexStart", "gke-flex-start"), ("preemptible", "gke-preemptible")):
        if config.get(key):
            found[f"cloud.google.com/{name}"] = "true"
    if reserved := value_at(config, "reservationAffinity.values"):
        found["cloud.google.com/reservation-name"] = str(reserved[0]).split("/")[0]
    gpu, _ = gpus_of(pool)
    if gpu:
        driver = value_at(config, "guestAccelerators.gpuDriverInstallationConfig.gpuDriverVersion") or "DEFAULT"
        found |= {"cloud.google.com/gke-accelerator": gpu, "cloud.google.com/gke-gpu-driver-version": driver.lower()}
    if tpu := slice_of(pool):
        found |= {
            "cloud.google.com/gke-tpu-accelerator": tpu.gke_accelerator,
            "cloud.google.com/gke-tpu-topology": tpu.topology_label,
            "cloud.google.com/gke-accelerator-count": str(tpu.chips_per_host),
        }
    return {**found, **(config.get("labels") or {})}


def gke_taints(pool: Properties, *, only_accelerators: bool) -> list[dict[str, str]]:
    """Return the taints of the pool's settings, and GKE's taints for accelerators.

    GKE adds no GPU taint if all pools have GPUs (`only_accelerators`):
    https://github.com/GoogleCloudPlatform/container-engine-accelerators/issues/703

    https://cloud.google.com/kubernetes-engine/docs/how-to/gpus
    """
    given = value_at(pool, "nodeConfig.taints") or []
    found = [{"key": each["key"], "value": each["value"], "effect": _TAINT_EFFECTS[each["effect"]]} for each in given]
    machine = machine_of(pool)
    if gpus_of(pool)[0] and not only_accelerators:
        found.append({"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"})
    if machine and machine.tpu_chips:
        found.append({"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"})
    return found


def gke_nodes(pool: Properties, count: int, *, only_accelerators: bool = False) -> list[dict[str, Any]]:
    """Return `count` Node objects of a GKE pool, spread over its zones."""
    machine = machine_of(pool)
    if machine is None:
        raise ValueError(f"machine type {value_at(pool, 'nodeConfig.machineType')} is not in the hardware table")
    cluster = str(pool["cluster"]).rpartition("/")[2]
    found = []
    zones = zones_of(pool)
    for place, zone in enumerate(zones):
        for index in range(len(range(place, count, len(zones)))):
            found.append(
                _node(
                    name=f"gke-{cluster}-{pool['name']}-{zone.rpartition('-')[2]}-{index}",
                    labels=gke_labels(pool),
                    zone=zone,
                    region=zone.rpartition("-")[0],
                    provider_id=f"gce://{pool['project']}/{zone}/gke-{cluster}-{pool['name']}-{index}",
                    taints=gke_taints(pool, only_accelerators=only_accelerators),
                    machine=machine,
                    capacity=gke_capacity(machine),
                    allocatable=gke_allocatable(machine),
                    pods=int(pool.get("maxPodsPerNode") or 110),
                    disk_gb=int(value_at(pool, "nodeConfig.diskSizeGb") or 100),
                    accelerators={"nvidia.com/gpu": gpus_of(pool)[1], "google.com/tpu": machine.tpu_chips},
                )
            )
    return found


def eks_nodes(group: Properties, machine: Ec2Machine, zones: Sequence[str], adapters: int) -> list[dict[str, Any]]:
    """Return the Node objects of an EKS node group, spread over its zones.

    `adapters` is the number of EFA adapters in the group's launch template.

    https://docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html
    """
    labels = {
        EKS_GROUP_LABEL: str(group["nodeGroupName"]),
        "eks.amazonaws.com/capacityType": str(group.get("capacityType") or "ON_DEMAND"),
        "node.kubernetes.io/instance-type": machine.name,
        **(group.get("labels") or {}),
    }
    taints = [
        {"key": each["key"], "value": each.get("value") or "", "effect": _TAINT_EFFECTS[each["effect"]]}
        for each in group.get("taints") or []
    ]
    found = []
    for index in range(int(value_at(group, "scalingConfig.desiredSize") or 0)):
        zone = zones[index % len(zones)]
        name = f"{group['clusterName']}-{group['nodeGroupName']}-{index}.{zone[:-1]}.compute.internal"
        found.append(
            _node(
                name=name,
                labels=labels,
                zone=zone,
                region=zone[:-1],
                provider_id=f"aws:///{zone}/i-{index:017x}",
                taints=taints,
                machine=machine,
                capacity=eks_capacity(machine),
                allocatable=eks_allocatable(machine, fabric=adapters > 0),
                pods=eks_pods(machine),
                disk_gb=100,
                accelerators={"nvidia.com/gpu": machine.gpus, "vpc.amazonaws.com/efa": adapters},
            )
        )
    return found


def _node(
    *,
    name: str,
    labels: Mapping[str, str],
    zone: str,
    region: str,
    provider_id: str,
    taints: Sequence[Mapping[str, str]],
    machine: MachineType,
    capacity: Capacity,
    allocatable: Capacity,
    pods: int,
    disk_gb: int,
    accelerators: Mapping[str, int],
) -> dict[str, Any]:
    """Return a Node object that is ready, with the given capacity and allocatable resources."""
    all_labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": ARCHITECTURE,
        "topology.kubernetes.io/zone": zone,
        "topology.kubernetes.io/region": region,
        "type": "kwok",
        **labels,
    }
    extended = {key: str(count) for key, count in accelerators.items() if count}
    disk = disk_gb * 10**9
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": all_labels},
        "spec": {"providerID": provider_id, "taints": list(taints)},
        "status": {
            "capacity": {**_amounts(capacity, pods, disk), **extended},
            "allocatable": {**_amounts(allocatable, pods, disk * 9 // 10), **extended},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
            "nodeInfo": {
                "architecture": ARCHITECTURE,
                "operatingSystem": "linux",
                "kubeletVersion": _KUBELET_VERSION,
                "kubeProxyVersion": _KUBELET_VERSION,
                "containerRuntimeVersion": "containerd://2.0",
                "kernelVersion": "6.6",
                "osImage": machine.name,
                "bootID": "",
                "machineID": "",
                "systemUUID": "",
            },
        },
    }


def _amounts(capacity: Capacity, pods: int, disk: int) -> dict[str, str]:
    return {
        "cpu": f"{capacity.millicores}m",
        "memory": str(capacity.memory),
        "pods": str(pods),
        "ephemeral-storage": str(disk),
    }


BUCKETS = ("gcp:storage/bucket:Bucket", "aws:s3/bucket:Bucket")
CLUSTERS = (GKE_CLUSTER, EKS_CLUSTER)


class ClusterEffects(Effects):
    """Effects of resources on the rehearsal's cluster and object store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def created(self, record: SimulatedResource) -> None:
        """Start the cluster, set the nodes, or create the bucket of a new or updated resource."""
        if record.type in CLUSTERS:
            try:
                control_plane.start(self._folder, record.id, is_gke=record.type == GKE_CLUSTER)
            except RuntimeError as error:
                raise Rejected(str(error)) from error
        elif record.type == NODE_POOL:
            scale(self._folder, record, nodes_per_zone(record.inputs) * len(zones_of(record.inputs)))
        elif record.type == NODE_GROUP:
            state = read_state(self._folder)
            name = record.inputs["nodeGroupName"]
            set_nodes(settings_of(state.settings), EKS_GROUP_LABEL, name, nodes_of_group(state, record))
        elif record.type in BUCKETS and (store := store_of(read_state(self._folder).settings)):
            store.create(record.id)

    def deleted(self, record: SimulatedResource) -> None:
        """Delete the cluster, the nodes, or the bucket of a deleted resource."""
        if record.type in CLUSTERS:
            control_plane.delete(self._folder)
        elif record.type in (NODE_POOL, NODE_GROUP):
            label, name = (GKE_POOL_LABEL, "name") if record.type == NODE_POOL else (EKS_GROUP_LABEL, "nodeGroupName")
            set_nodes(settings_of(read_state(self._folder).settings), label, record.inputs[name], [])
        elif record.type in BUCKETS and (store := store_of(read_state(self._folder).settings)):
            if record.inputs.get("forceDestroy"):
                store.clear(record.id)
            try:
                store.delete(record.id)
            except StoreError as error:
                raise Rejected(f"{record.id}: {error}") from error


def nodes_of_group(state: CloudState, record: SimulatedResource) -> list[dict[str, Any]]:
    """Return the nodes of an EKS node group. Raises Rejected for an unknown instance type."""
    group = record.inputs
    machine = machine_of_group(group, state)
    if machine is None:
        raise Rejected(f"node group {group['nodeGroupName']}: its instance type is not in the hardware table")
    subnets = [state.find(each, SUBNET) for each in group["subnetIds"]]
    zones = [each.inputs["availabilityZone"] for each in subnets if each]
    template = state.find(str(value_at(group, "launchTemplate.id")), TEMPLATE)
    given = (template.inputs.get("networkInterfaces") or []) if template else []
    adapters = sum(str(each.get("interfaceType", "")).startswith("efa") for each in given)
    return eks_nodes(group, machine, zones, adapters)


def scale(folder: Path, record: SimulatedResource, count: int) -> None:
    """Set the number of nodes of a GKE node pool."""
    state = read_state(folder)
    wanted = nodes_of_pool(state, record, count)
    set_nodes(settings_of(state.settings), GKE_POOL_LABEL, record.inputs["name"], wanted)


def nodes_of_pool(state: CloudState, record: SimulatedResource, count: int) -> list[dict[str, Any]]:
    """Return `count` nodes of a GKE node pool."""
    only_accelerators = all(gpus_of(each.inputs)[0] for each in state.of_type(NODE_POOL))
    return gke_nodes(with_topology(state, record.inputs), count, only_accelerators=only_accelerators)


def with_topology(state: CloudState, inputs: Properties) -> Properties:
    """Return the inputs of a pool, with the topology of the pool's workload policy if there is one."""
    name = value_at(inputs, "placementPolicy.policyName")
    policy = state.find(str(name), POLICY) if name else None
    topology = value_at(policy.inputs, "workloadPolicy.acceleratorTopology") if policy else None
    return {**inputs, "__workloadPolicyTopology": topology} if topology else inputs
