"""Queues component: Kueue's objects for queued jobs. Each pool has a quota, and all queues share the quotas.

Kueue admits all hosts of a job together, when the remaining quota is enough. It compares sums over a pool, not the
capacity of single nodes. Source: sigs.k8s.io/kueue v0.19.2, apis/kueue/v1beta2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from infra.hardware import MEBIBYTE, PoolCapacity, gpus
from infra.naming import stack_labels
from settings.kubernetes_values import format_cpu, format_memory
from workloads.kinds.kind import Schema

API_VERSION = "kueue.x-k8s.io/v1beta2"
CLUSTER_QUEUE = "trainyard"
"""Name of the ClusterQueue. A cluster has only one, because only one stack per cluster may install operators."""
PROVISIONING_CHECK = "queued-provisioning"
"""Name of the admission check that requests nodes, and also of its configuration."""
WAIT_FOR_ACTIVE = {"pulumi.com/waitFor": "condition=Active"}
"""Annotation that makes Pulumi wait until Kueue reports the resource as active."""


@dataclass(frozen=True, kw_only=True)
class Taint(Schema):
    """Taint of nodes. Only pods that tolerate it can run there."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, kw_only=True)
class ResourceFlavorSpec(Schema):
    """Labels and taints of a pool's nodes."""

    node_labels: dict[str, str] | None
    node_taints: tuple[Taint, ...] | None


@dataclass(frozen=True, kw_only=True)
class ResourceQuota(Schema):
    """Quota of one resource for all admitted jobs together."""

    name: str
    nominal_quota: str


@dataclass(frozen=True, kw_only=True)
class FlavorQuotas(Schema):
    """Quotas of all resources of one pool."""

    name: str
    resources: tuple[ResourceQuota, ...]


@dataclass(frozen=True, kw_only=True)
class ResourceGroup(Schema):
    """Resources that a pod gets from the same pool."""

    covered_resources: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


@dataclass(frozen=True, kw_only=True)
class NamespaceSelector(Schema):
    """Labels of the namespaces whose jobs the queue admits."""

    match_labels: dict[str, pulumi.Input[str]]


@dataclass(frozen=True, kw_only=True)
class AdmissionCheckStrategyRule(Schema):
    """Admission check of jobs on some pools. It applies in addition to the quota."""

    name: str
    on_flavors: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class AdmissionChecksStrategy(Schema):
    """Admission checks of a ClusterQueue."""

    admission_checks: tuple[AdmissionCheckStrategyRule, ...]


@dataclass(frozen=True, kw_only=True)
class ClusterQueueSpec(Schema):
    """Spec of the ClusterQueue, whose quotas the LocalQueues share."""

    admission_checks_strategy: AdmissionChecksStrategy | None
    namespace_selector: NamespaceSelector
    resource_groups: tuple[ResourceGroup, ...]


@dataclass(frozen=True, kw_only=True)
class AdmissionCheckParametersReference(Schema):
    """Reference to the configuration of a check."""

    api_group: str
    kind: str
    name: str


@dataclass(frozen=True, kw_only=True)
class AdmissionCheckSpec(Schema):
    """Spec of the admission check."""

    controller_name: str
    parameters: AdmissionCheckParametersReference


@dataclass(frozen=True, kw_only=True)
class ProvisioningRequestConfigSpec(Schema):
    """Configuration of requests for nodes."""

    managed_resources: tuple[str, ...]
    pod_set_merge_policy: str
    provisioning_class_name: str


@dataclass(frozen=True, kw_only=True)
class LocalQueueSpec(Schema):
    """Spec of a LocalQueue, a queue of one namespace."""

    cluster_queue: str


@dataclass(frozen=True, kw_only=True)
class QueuesArgs:
    """Arguments of Queues."""

    names: frozenset[str]
    """Names of the queues in the jobs' settings."""
    namespace: pulumi.Input[str]
    pools: Sequence[PoolCapacity]
    """Capacity of each pool for queued jobs. A pod without a node selector gets the first pool with enough capacity."""
    after: Sequence[pulumi.Resource] = ()
    """Resources that must be ready first, such as Kueue."""


class Queues(pulumi.ComponentResource):
    """Queues of one stack. All queues share the quotas of the pools."""

    def __init__(self, name: str, args: QueuesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:workloads:Queues", name, None, opts)
        options = pulumi.ResourceOptions(parent=self, depends_on=list(args.after))
        flavors = [
            CustomResource(
                f"{name}-{pool.name}-flavor",
                api_version=API_VERSION,
                kind="ResourceFlavor",
                metadata=ObjectMetaArgs(name=pool.name, labels=stack_labels()),
                spec=flavor(pool).plain(),
                opts=options,
            )
            for pool in args.pools
        ]
        requested_pools = tuple(pool.name for pool in args.pools if pool.on_request)
        checks = provisioning_check(name, options) if requested_pools else []
        rule = AdmissionCheckStrategyRule(name=PROVISIONING_CHECK, on_flavors=requested_pools)
        strategy = AdmissionChecksStrategy(admission_checks=(rule,))
        cluster_queue = CustomResource(
            f"{name}-cluster-queue",
            api_version=API_VERSION,
            kind="ClusterQueue",
            metadata=ObjectMetaArgs(name=CLUSTER_QUEUE, labels=stack_labels(), annotations=WAIT_FOR_ACTIVE),
            spec=ClusterQueueSpec(
                admission_checks_strategy=strategy if requested_pools else None,
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
                    name=queue, namespace=args.namespace, labels=stack_labels(), annotations=WAIT_FOR_ACTIVE
                ),
                spec=LocalQueueSpec(cluster_queue=CLUSTER_QUEUE).plain(),
                opts=pulumi.ResourceOptions(parent=self, depends_on=[cluster_queue]),
            )
        self.register_outputs({})


def provisioning_check(name: str, opts: pulumi.ResourceOptions) -> list[pulumi.Resource]:
    """Create the admission check that requests all nodes of a job from GKE before the job starts.

    Return the configuration and the check. GKE accepts one pod set per ProvisioningRequest, so make Kueue merge a
    master and workers with equal resource requests into one: https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
    """
    config = CustomResource(
        f"{name}-nodes-config",
        api_version=API_VERSION,
        kind="ProvisioningRequestConfig",
        metadata=ObjectMetaArgs(name=PROVISIONING_CHECK, labels=stack_labels()),
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
        metadata=ObjectMetaArgs(name=PROVISIONING_CHECK, labels=stack_labels(), annotations=WAIT_FOR_ACTIVE),
        spec=AdmissionCheckSpec(
            controller_name="kueue.x-k8s.io/provisioning-request",
            parameters=AdmissionCheckParametersReference(
                api_group=API_VERSION.partition("/")[0], kind="ProvisioningRequestConfig", name=PROVISIONING_CHECK
            ),
        ).plain(),
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[config])),
    )
    return [config, check]


def flavor(pool: PoolCapacity) -> ResourceFlavorSpec:
    """Return a pool's flavor, with the labels and the taint of its nodes."""
    taints = (Taint(key=pool.taint, value="present", effect="NoSchedule"),) if pool.taint else None
    return ResourceFlavorSpec(node_labels=dict(pool.node_labels) or None, node_taints=taints)


def resource_group(pools: Sequence[PoolCapacity]) -> ResourceGroup:
    """Return the quotas of all pools, each with every resource that any pool has."""
    devices = sorted({device for pool in pools for device in pool.devices})
    return ResourceGroup(
        covered_resources=("cpu", "memory", *devices),
        flavors=tuple(FlavorQuotas(name=pool.name, resources=_quotas(pool, devices)) for pool in pools),
    )


def _quotas(pool: PoolCapacity, devices: Sequence[str]) -> tuple[ResourceQuota, ...]:
    """Return a pool's quotas in the API server's format. Pulumi would show another format as a change each time."""
    amounts = {
        "cpu": format_cpu(pool.free.millicores),
        "memory": format_memory(pool.free.memory // MEBIBYTE * MEBIBYTE),
        **{device: str(pool.devices.get(device, 0)) for device in devices},
    }
    return tuple(ResourceQuota(name=name, nominal_quota=amount) for name, amount in amounts.items())
