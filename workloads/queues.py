"""The Queues component: what Kueue admits the jobs of queues by, a share of every pool and the queues that draw on it.

Kueue counts what the nodes have together: a job is admitted, all of its hosts, when that much is left. Source:
sigs.k8s.io/kueue v0.14.0, apis/kueue/v1beta1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from infra.hardware import MEBIBYTE, format_cpu, format_memory
from infra.naming import stack_labels
from infra.pool_room import PoolRoom
from workloads.kinds.parts import Schema

API_VERSION = "kueue.x-k8s.io/v1beta1"
CLUSTER_QUEUE = "trainyard"
"""Name of the one ClusterQueue: a cluster has the operators of one stack."""
ACTIVE = {"pulumi.com/waitFor": "condition=Active"}
"""Kueue takes jobs for it."""


@dataclass(frozen=True, kw_only=True)
class Taint(Schema):
    """Keeps away pods that do not tolerate it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, kw_only=True)
class ResourceFlavorSpec(Schema):
    """Nodes of one pool."""

    node_labels: dict[str, str] | None
    node_taints: tuple[Taint, ...] | None


@dataclass(frozen=True, kw_only=True)
class ResourceQuota(Schema):
    """How much of one resource all admitted jobs together may ask."""

    name: str
    nominal_quota: str


@dataclass(frozen=True, kw_only=True)
class FlavorQuotas(Schema):
    """The same of all that one pool has."""

    name: str
    resources: tuple[ResourceQuota, ...]


@dataclass(frozen=True, kw_only=True)
class ResourceGroup(Schema):
    """Resources that a pod takes from one pool."""

    covered_resources: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


@dataclass(frozen=True, kw_only=True)
class NamespaceSelector(Schema):
    """Namespaces whose jobs it admits."""

    match_labels: dict[str, pulumi.Input[str]]


@dataclass(frozen=True, kw_only=True)
class ClusterQueueSpec(Schema):
    """What there is to share."""

    namespace_selector: NamespaceSelector
    resource_groups: tuple[ResourceGroup, ...]


@dataclass(frozen=True, kw_only=True)
class LocalQueueSpec(Schema):
    """A queue of one namespace."""

    cluster_queue: str


@dataclass(frozen=True, kw_only=True)
class QueuesArgs:
    """Which queues there are to be, and of what."""

    names: frozenset[str]
    """Names of the queues that jobs name."""
    namespace: pulumi.Input[str]
    """Namespace of the jobs."""
    rooms: Sequence[PoolRoom]
    """What the pools have for them; a pod that says no pool takes the first that has enough."""
    after: Sequence[pulumi.Resource] = ()
    """What must work before: Kueue."""


class Queues(pulumi.ComponentResource):
    """The queues of one stack: whatever their names, their jobs share what the nodes have."""

    def __init__(self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:workloads:Queues", name, None, opts)
        after = pulumi.ResourceOptions(parent=self, depends_on=list(args.after))
        flavors = [
            CustomResource(
                f"{name}-{room.pool}-flavor",
                api_version=API_VERSION,
                kind="ResourceFlavor",
                metadata=ObjectMetaArgs(name=room.pool, labels=stack_labels()),
                spec=flavor(room).plain(),
                opts=after,
            )
            for room in args.rooms
        ]
        cluster_queue = CustomResource(
            f"{name}-cluster-queue",
            api_version=API_VERSION,
            kind="ClusterQueue",
            metadata=ObjectMetaArgs(name=CLUSTER_QUEUE, labels=stack_labels(), annotations=ACTIVE),
            spec=ClusterQueueSpec(
                namespace_selector=NamespaceSelector(match_labels={"kubernetes.io/metadata.name": args.namespace}),
                resource_groups=(resource_group(args.rooms),),
            ).plain(),
            opts=pulumi.ResourceOptions(parent=self, depends_on=flavors),
        )
        for queue in sorted(args.names):
            CustomResource(
                f"{name}-{queue}",
                api_version=API_VERSION,
                kind="LocalQueue",
                metadata=ObjectMetaArgs(
                    name=queue, namespace=args.namespace, labels=stack_labels(), annotations=ACTIVE
                ),
                spec=LocalQueueSpec(cluster_queue=CLUSTER_QUEUE).plain(),
                opts=pulumi.ResourceOptions(parent=self, depends_on=[cluster_queue]),
            )
        self.register_outputs({})


def flavor(room: PoolRoom) -> ResourceFlavorSpec:
    """The pool as Kueue knows it: pods that say its labels and tolerate its taint may run there."""
    taints = (Taint(key=room.taint, value="present", effect="NoSchedule"),) if room.taint else None
    return ResourceFlavorSpec(node_labels=dict(room.node_labels) or None, node_taints=taints)


def resource_group(rooms: Sequence[PoolRoom]) -> ResourceGroup:
    """What each pool has of everything that any of them has."""
    devices = sorted({device for room in rooms for device in room.devices})
    return ResourceGroup(
        covered_resources=("cpu", "memory", *devices),
        flavors=tuple(FlavorQuotas(name=room.pool, resources=_quotas(room, devices)) for room in rooms),
    )


def _quotas(room: PoolRoom, devices: Sequence[str]) -> tuple[ResourceQuota, ...]:
    """Quantities as the API server writes them: any others would be a change in every update."""
    amounts = {
        "cpu": format_cpu(room.room.millicores),
        "memory": format_memory(room.room.memory // MEBIBYTE * MEBIBYTE),
        **{device: str(room.devices.get(device, 0)) for device in devices},
    }
    return tuple(ResourceQuota(name=name, nominal_quota=amount) for name, amount in amounts.items())
