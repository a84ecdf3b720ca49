"""The Queues component: what Kueue admits the jobs of queues by, a share of every pool and the queues that draw on it.

Kueue counts what the nodes have together: a job is admitted, all of its hosts, when that much is left. Source:
sigs.k8s.io/kueue v0.19.2, apis/kueue/v1beta2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from infra.capacity.pool_capacity import PoolCapacity
from infra.hardware import MEBIBYTE, format_cpu, format_memory, gpus
from infra.naming import stack_labels
from workloads.kinds.schema import Schema

API_VERSION = "kueue.x-k8s.io/v1beta2"
CLUSTER_QUEUE = "trainyard"
"""Name of the one ClusterQueue: a cluster has the operators of one stack."""
ON_REQUEST = "queued-provisioning"
"""Name of the check that asks for nodes, and of how."""
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
class CheckOfFlavors(Schema):
    """A check that a job must pass beside its quota, on some pools."""

    name: str
    on_flavors: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ChecksStrategy(Schema):
    """Which checks there are."""

    admission_checks: tuple[CheckOfFlavors, ...]


@dataclass(frozen=True, kw_only=True)
class ClusterQueueSpec(Schema):
    """What there is to share."""

    admission_checks_strategy: ChecksStrategy | None
    namespace_selector: NamespaceSelector
    resource_groups: tuple[ResourceGroup, ...]


@dataclass(frozen=True, kw_only=True)
class Parameters(Schema):
    """What says more about a check."""

    api_group: str
    kind: str
    name: str


@dataclass(frozen=True, kw_only=True)
class AdmissionCheckSpec(Schema):
    """A check."""

    controller_name: str
    parameters: Parameters


@dataclass(frozen=True, kw_only=True)
class ProvisioningRequestConfigSpec(Schema):
    """How nodes are asked for."""

    managed_resources: tuple[str, ...]
    pod_set_merge_policy: str
    provisioning_class_name: str


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
    pools: Sequence[PoolCapacity]
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
                f"{name}-{pool.name}-flavor",
                api_version=API_VERSION,
                kind="ResourceFlavor",
                metadata=ObjectMetaArgs(name=pool.name, labels=stack_labels()),
                spec=flavor(pool).plain(),
                opts=after,
            )
            for pool in args.pools
        ]
        on_request = tuple(pool.name for pool in args.pools if pool.on_request)
        checks = ask_for_nodes(name, after) if on_request else []
        strategy = ChecksStrategy(admission_checks=(CheckOfFlavors(name=ON_REQUEST, on_flavors=on_request),))
        cluster_queue = CustomResource(
            f"{name}-cluster-queue",
            api_version=API_VERSION,
            kind="ClusterQueue",
            metadata=ObjectMetaArgs(name=CLUSTER_QUEUE, labels=stack_labels(), annotations=ACTIVE),
            spec=ClusterQueueSpec(
                admission_checks_strategy=strategy if on_request else None,
                namespace_selector=NamespaceSelector(match_labels={"kubernetes.io/metadata.name": args.namespace}),
                resource_groups=(resource_group(args.pools),),
            ).plain(),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[*flavors, *checks]),
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


def ask_for_nodes(name: str, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """The check by which Kueue asks GKE for the nodes of a job, all at once, before it starts.

    GKE takes one set of pods a request: a master and workers that want the same are one.
    https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
    """
    config = CustomResource(
        f"{name}-nodes-config",
        api_version=API_VERSION,
        kind="ProvisioningRequestConfig",
        metadata=ObjectMetaArgs(name=ON_REQUEST, labels=stack_labels()),
        spec=ProvisioningRequestConfigSpec(
            managed_resources=(gpus.RESOURCE,),
            pod_set_merge_policy="IdenticalWorkloadSchedulingRequirements",
            provisioning_class_name="queued-provisioning.gke.io",
        ).plain(),
        opts=opts,
    )
    check = CustomResource(
        f"{name}-nodes-check",
        api_version=API_VERSION,
        kind="AdmissionCheck",
        metadata=ObjectMetaArgs(name=ON_REQUEST, labels=stack_labels(), annotations=ACTIVE),
        spec=AdmissionCheckSpec(
            controller_name="kueue.x-k8s.io/provisioning-request",
            parameters=Parameters(
                api_group=API_VERSION.partition("/")[0], kind="ProvisioningRequestConfig", name=ON_REQUEST
            ),
        ).plain(),
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[config])),
    )
    return [config, check]


def flavor(pool: PoolCapacity) -> ResourceFlavorSpec:
    """The pool as Kueue knows it: pods that say its labels and tolerate its taint may run there."""
    taints = (Taint(key=pool.taint, value="present", effect="NoSchedule"),) if pool.taint else None
    return ResourceFlavorSpec(node_labels=dict(pool.node_labels) or None, node_taints=taints)


def resource_group(pools: Sequence[PoolCapacity]) -> ResourceGroup:
    """What each pool has of everything that any of them has."""
    devices = sorted({device for pool in pools for device in pool.devices})
    return ResourceGroup(
        covered_resources=("cpu", "memory", *devices),
        flavors=tuple(FlavorQuotas(name=pool.name, resources=_quotas(pool, devices)) for pool in pools),
    )


def _quotas(pool: PoolCapacity, devices: Sequence[str]) -> tuple[ResourceQuota, ...]:
    """Quantities as the API server writes them: any others would be a change in every update."""
    amounts = {
        "cpu": format_cpu(pool.free.millicores),
        "memory": format_memory(pool.free.memory // MEBIBYTE * MEBIBYTE),
        **{device: str(pool.devices.get(device, 0)) for device in devices},
    }
    return tuple(ResourceQuota(name=name, nominal_quota=amount) for name, amount in amounts.items())
