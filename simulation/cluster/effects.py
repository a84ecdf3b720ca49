"""Effects of simulated clusters, node pools and buckets: a control plane, nodes, and buckets of the object store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simulation.cloud.aws import CLUSTER as EKS_CLUSTER
from simulation.cloud.aws import NODE_GROUP, SUBNET, TEMPLATE, machine_of
from simulation.cloud.gcp import CLUSTER as GKE_CLUSTER
from simulation.cloud.gcp import NODE_POOL, POLICY, gpus_of, nodes_per_zone, zones_of
from simulation.cloud.kind import value_at
from simulation.cloud.lifecycle import Effects, Rejected
from simulation.cloud.state import CloudState, Properties, Record, read_state
from simulation.cluster import control_plane
from simulation.cluster.control_plane import set_nodes, settings_of
from simulation.cluster.nodes import EKS_GROUP_LABEL, GKE_POOL_LABEL, eks_nodes, gke_nodes
from simulation.object_store import StoreError, store_of

BUCKETS = ("gcp:storage/bucket:Bucket", "aws:s3/bucket:Bucket")
CLOUD_NAMES = {GKE_CLUSTER: "gke", EKS_CLUSTER: "eks"}


class ClusterEffects(Effects):
    """Effects on the rehearsal's cluster and object store."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def created(self, record: Record) -> None:
        """Start the cluster, set the nodes or create the bucket of a new or updated resource."""
        if record.type in CLOUD_NAMES:
            try:
                control_plane.start(self._folder, CLOUD_NAMES[record.type], record.id)
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

    def deleted(self, record: Record) -> None:
        """Stop the cluster, delete the nodes or delete the bucket of a resource."""
        if record.type in CLOUD_NAMES:
            control_plane.delete(self._folder)
        elif record.type == NODE_POOL:
            settings = settings_of(read_state(self._folder).settings)
            set_nodes(settings, GKE_POOL_LABEL, record.inputs["name"], [])
        elif record.type == NODE_GROUP:
            settings = settings_of(read_state(self._folder).settings)
            set_nodes(settings, EKS_GROUP_LABEL, record.inputs["nodeGroupName"], [])
        elif record.type in BUCKETS and (store := store_of(read_state(self._folder).settings)):
            if record.inputs.get("forceDestroy"):
                store.clear(record.id)
            try:
                store.delete(record.id)
            except StoreError as error:
                raise Rejected(f"{record.id}: {error}") from error


def nodes_of_group(state: CloudState, record: Record) -> list[dict[str, Any]]:
    """Return the nodes of an EKS node group. Raises Rejected for an unknown instance type."""
    group = record.inputs
    machine = machine_of(group, state)
    if machine is None:
        raise Rejected(f"node group {group['nodeGroupName']}: its instance type is not in the hardware table")
    subnets = [state.find(each, SUBNET) for each in group["subnetIds"]]
    zones = [each.inputs["availabilityZone"] for each in subnets if each]
    template = state.find(str(value_at(group, "launchTemplate.id")), TEMPLATE)
    given = (template.inputs.get("networkInterfaces") or []) if template else []
    adapters = sum(str(each.get("interfaceType", "")).startswith("efa") for each in given)
    return eks_nodes(group, machine, zones, adapters)


def scale(folder: Path, record: Record, count: int) -> None:
    """Set the number of nodes of a GKE node pool."""
    state = read_state(folder)
    wanted = nodes_of_pool(state, record, count)
    set_nodes(settings_of(state.settings), GKE_POOL_LABEL, record.inputs["name"], wanted)


def nodes_of_pool(state: CloudState, record: Record, count: int) -> list[dict[str, Any]]:
    """Return `count` nodes of a GKE node pool."""
    pools = [each.inputs for each in state.of_type(NODE_POOL)]
    only_accelerators = all(gpus_of(each)[0] for each in pools)
    inputs = with_topology(state, record.inputs)
    return gke_nodes(inputs, count, only_accelerators=only_accelerators)


def with_topology(state: CloudState, inputs: Properties) -> Properties:
    """Return the inputs of a pool with the topology of its workload policy, if it has one."""
    name = (inputs.get("placementPolicy") or {}).get("policyName")
    policy = state.find(str(name), POLICY) if name else None
    topology = (policy.inputs.get("workloadPolicy") or {}).get("acceleratorTopology") if policy else None
    return {**inputs, "__workloadPolicyTopology": topology} if topology else inputs
