"""SystemNodePool and AcceleratorNodePool: the nodes of a GKE cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.gcp.config import GkeConfig
from infra.gcp.pools import NodePoolPlan, system_machine
from infra.naming import CLOUD_LABELS, COMPUTE_CLASS_LABEL, POOL_LABEL, QUEUED_LABEL

SYSTEM_TIMEOUTS = pulumi.CustomTimeouts(create="45m", update="60m", delete="45m")
SLOW_TIMEOUTS = pulumi.CustomTimeouts(create="120m", update="120m", delete="60m")
"""Of accelerators: eight H100 a node have taken more than 35 minutes, https://github.com/NVIDIA/aicr/issues/2065"""
PODS_PER_NODE = 32
SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
"""IAM roles decide, not scopes: https://cloud.google.com/compute/docs/access/service-accounts#scopes_best_practice"""
DRIVERS = {"default": "DEFAULT", "latest": "LATEST"}

_container = gcp.container


@dataclass(frozen=True, kw_only=True)
class SystemNodePoolArgs:
    """What the system pool is made from."""

    project: pulumi.Input[str]
    """Project of the cluster."""
    cluster: pulumi.Input[str]
    """Name of the cluster."""
    service_account: pulumi.Input[str]
    """E-mail address of the service account of the nodes."""
    config: GkeConfig
    """Settings."""


class SystemNodePool(pulumi.ComponentResource):
    """Nodes on demand in one zone, for what is not training."""

    ready: pulumi.Output[str]
    """Id of the pool, known when it has its nodes."""

    def __init__(self, name: str, args: SystemNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:gcp:SystemNodePool", name, None, opts)
        config, pool = args.config, args.config.system_pool
        nodes = _container.NodePool(
            f"{name}-nodes",
            name="system",
            project=args.project,
            cluster=args.cluster,
            location=config.location,
            node_locations=[config.zone],
            initial_node_count=pool.nodes,
            autoscaling=_container.NodePoolAutoscalingArgs(
                min_node_count=pool.nodes, max_node_count=pool.max_nodes, location_policy="BALANCED"
            ),
            management=_container.NodePoolManagementArgs(auto_repair=True, auto_upgrade=True),
            upgrade_settings=_container.NodePoolUpgradeSettingsArgs(strategy="SURGE", max_surge=1, max_unavailable=0),
            network_config=_container.NodePoolNetworkConfigArgs(enable_private_nodes=True),
            node_config=_container.NodePoolNodeConfigArgs(
                machine_type=system_machine(config),
                disk_size_gb=100,
                disk_type="pd-balanced",
                image_type="COS_CONTAINERD",
                service_account=args.service_account,
                oauth_scopes=SCOPES,
                gcfs_config=_container.NodePoolNodeConfigGcfsConfigArgs(enabled=config.image_streaming),
                shielded_instance_config=_shielded(),
                workload_metadata_config=_metadata_server(),
                kubelet_config=_kubelet(),
                labels={POOL_LABEL: "system"},
                resource_labels=CLOUD_LABELS,
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                custom_timeouts=SYSTEM_TIMEOUTS,
                delete_before_replace=True,
                # The autoscaler's business once the pool is there.
                ignore_changes=["initialNodeCount", "nodeCount"],
            ),
        )
        self.ready = nodes.id
        self.register_outputs({"ready": self.ready})


@dataclass(frozen=True, kw_only=True)
class AcceleratorNodePoolArgs:
    """What a pool for jobs is made from."""

    project: pulumi.Input[str]
    """Project of the cluster."""
    cluster: pulumi.Input[str]
    """Name of the cluster."""
    service_account: pulumi.Input[str]
    """E-mail address of the service account of the nodes."""
    config: GkeConfig
    """Settings of the platform."""
    plan: NodePoolPlan
    """What the pool is."""
    networks: pulumi.Input[Sequence[tuple[str, str]]]
    """Further VPCs of each node and their subnets, for GPUs that have network interfaces of their own."""


class AcceleratorNodePool(pulumi.ComponentResource):
    """Nodes for jobs: GPUs, a slice of TPUs, single TPU hosts, or plain machines."""

    ready: pulumi.Output[str]
    """Name of the pool, known when it has its nodes."""

    def __init__(self, name: str, args: AcceleratorNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:gcp:AcceleratorNodePool", name, None, opts)
        plan = args.plan
        pool = _container.NodePool(
            f"{name}-nodes",
            name=plan.name,
            project=args.project,
            cluster=args.cluster,
            location=args.config.location,
            node_locations=list(plan.zones),
            **_size(plan),
            management=_container.NodePoolManagementArgs(
                # Dynamic Workload Scheduler refuses auto-repair; a broken slice is otherwise made anew as a whole.
                auto_repair=not plan.flexible,
                auto_upgrade=True,
            ),
            upgrade_settings=_upgrades(plan),
            max_pods_per_node=PODS_PER_NODE,
            network_config=_container.NodePoolNetworkConfigArgs(
                enable_private_nodes=True, additional_node_network_configs=_further_networks(args)
            ),
            placement_policy=self._placement(name, args),
            queued_provisioning=_container.NodePoolQueuedProvisioningArgs(enabled=True)
            if plan.rung == "queued"
            else None,
            node_config=_node_config(args),
            opts=pulumi.ResourceOptions(
                parent=self,
                custom_timeouts=SLOW_TIMEOUTS if plan.machine.accelerators or plan.gpu else SYSTEM_TIMEOUTS,
                # There may be no second set of accelerators to put in place first.
                delete_before_replace=True,
                ignore_changes=[] if plan.min_nodes is None else ["initialNodeCount", "nodeCount"],
            ),
        )
        self.ready = pulumi.Output.all(pool.name, pool.id).apply(lambda values: str(values[0]))
        self.register_outputs({"ready": self.ready})

    def _placement(self, name: str, args: AcceleratorNodePoolArgs) -> gcp.container.NodePoolPlacementPolicyArgs | None:
        """Where the nodes are to each other; single TPU hosts have no say in it.

        https://cloud.google.com/kubernetes-engine/docs/how-to/tpus, https://github.com/AI-Hypercomputer/xpk/pull/825
        """
        plan = args.plan
        if plan.compact:
            return _container.NodePoolPlacementPolicyArgs(type="COMPACT")
        if plan.tpu is None or not plan.multi_host:
            return None
        if plan.tpu.generation != "v7x":
            return _container.NodePoolPlacementPolicyArgs(type="COMPACT", tpu_topology=plan.tpu.topology_label)
        policy = gcp.compute.ResourcePolicy(
            f"{name}-workload-policy",
            name=f"{args.config.name}-{plan.name}"[:63].rstrip("-"),
            project=args.project,
            region=args.config.region,
            workload_policy=gcp.compute.ResourcePolicyWorkloadPolicyArgs(
                type="HIGH_THROUGHPUT", accelerator_topology=plan.tpu.topology_label
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )
        return _container.NodePoolPlacementPolicyArgs(type="COMPACT", policy_name=policy.name)


def _size(plan: NodePoolPlan) -> dict[str, object]:
    """Number of nodes. What is counted in each zone is said for each zone.

    The total of a multi-host slice is not looked at by GKE: https://github.com/vllm-project/ci-infra/pull/545
    """
    if plan.min_nodes is None:
        return {"node_count": plan.nodes // len(plan.zones)}
    if plan.multi_host:
        autoscaling = _container.NodePoolAutoscalingArgs(
            min_node_count=plan.min_nodes, max_node_count=plan.nodes, location_policy="ANY"
        )
    else:
        autoscaling = _container.NodePoolAutoscalingArgs(
            total_min_node_count=plan.min_nodes, total_max_node_count=plan.nodes, location_policy="ANY"
        )
    return {"initial_node_count": -(-plan.min_nodes // len(plan.zones)), "autoscaling": autoscaling}


def _upgrades(plan: NodePoolPlan) -> gcp.container.NodePoolUpgradeSettingsArgs:
    if plan.flexible:
        return _container.NodePoolUpgradeSettingsArgs(strategy="SHORT_LIVED")
    # No spare accelerators to surge into.
    return _container.NodePoolUpgradeSettingsArgs(strategy="SURGE", max_surge=0, max_unavailable=1)


def _further_networks(
    args: AcceleratorNodePoolArgs,
) -> pulumi.Output[list[gcp.container.NodePoolNetworkConfigAdditionalNodeNetworkConfigArgs]]:
    return pulumi.Output.from_input(args.networks).apply(
        lambda networks: [
            _container.NodePoolNetworkConfigAdditionalNodeNetworkConfigArgs(network=network, subnetwork=subnetwork)
            for network, subnetwork in networks
        ]
    )


def _node_config(args: AcceleratorNodePoolArgs) -> gcp.container.NodePoolNodeConfigArgs:
    """What each node is."""
    plan, pool = args.plan, args.plan.pool
    disks = plan.machine.local_ssds
    return _container.NodePoolNodeConfigArgs(
        machine_type=plan.machine.name,
        disk_size_gb=pool.disk_size_gb,
        disk_type=plan.disk_type,
        image_type="COS_CONTAINERD",
        service_account=args.service_account,
        oauth_scopes=SCOPES,
        spot=True if plan.rung == "spot" else None,
        flex_start=True if plan.rung == "flex-start" else None,
        max_run_duration=None if plan.max_run_hours is None else f"{plan.max_run_hours * 3600}s",
        reservation_affinity=_reservation(plan),
        guest_accelerators=_gpus(plan),
        gvnic=_container.NodePoolNodeConfigGvnicArgs(enabled=True),
        gcfs_config=_container.NodePoolNodeConfigGcfsConfigArgs(enabled=args.config.image_streaming),
        secondary_boot_disks=None
        if pool.preloaded_image_disk is None
        else [
            _container.NodePoolNodeConfigSecondaryBootDiskArgs(
                disk_image=pool.preloaded_image_disk, mode="CONTAINER_IMAGE_CACHE"
            )
        ],
        ephemeral_storage_local_ssd_config=_container.NodePoolNodeConfigEphemeralStorageLocalSsdConfigArgs(
            local_ssd_count=disks
        )
        if disks
        else None,
        shielded_instance_config=_shielded(),
        workload_metadata_config=_metadata_server(),
        kubelet_config=_kubelet(),
        labels=_labels(plan),
        taints=_taints(plan),
        resource_labels=CLOUD_LABELS,
    )


def _reservation(plan: NodePoolPlan) -> gcp.container.NodePoolNodeConfigReservationAffinityArgs | None:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/consuming-reservations"""
    kind, _, name = plan.rung.partition(":")
    if kind == "reservation":
        return _container.NodePoolNodeConfigReservationAffinityArgs(
            consume_reservation_type="SPECIFIC_RESERVATION",
            key="compute.googleapis.com/reservation-name",
            values=[name],
        )
    if plan.flexible:
        return _container.NodePoolNodeConfigReservationAffinityArgs(consume_reservation_type="NO_RESERVATION")
    return None


def _gpus(plan: NodePoolPlan) -> list[gcp.container.NodePoolNodeConfigGuestAcceleratorArgs] | None:
    """GPUs with the driver that GKE installs: without saying so a pool waits for one that never comes.

    https://github.com/GoogleCloudPlatform/container-engine-accelerators/issues/407
    """
    if plan.gpu is None:
        return None
    driver = _container.NodePoolNodeConfigGuestAcceleratorGpuDriverInstallationConfigArgs(
        gpu_driver_version=DRIVERS[plan.pool.gpu_driver]
    )
    return [
        _container.NodePoolNodeConfigGuestAcceleratorArgs(
            type=plan.gpu, count=plan.gpus, gpu_driver_installation_config=driver
        )
    ]


def _labels(plan: NodePoolPlan) -> dict[str, str]:
    labels = {POOL_LABEL: plan.pool.name}
    if plan.ladder:
        labels[COMPUTE_CLASS_LABEL] = plan.pool.name
    if plan.rung == "queued":
        labels[QUEUED_LABEL] = "true"
    return labels


def _taints(plan: NodePoolPlan) -> list[gcp.container.NodePoolNodeConfigTaintArgs] | None:
    """Taints of ours. GKE adds those of GPUs and TPUs by itself; said here too, they would fight with its own."""
    keys = {COMPUTE_CLASS_LABEL: plan.pool.name} if plan.ladder else {}
    if plan.rung == "queued":
        keys[QUEUED_LABEL] = "true"
    taints = [
        _container.NodePoolNodeConfigTaintArgs(key=key, value=value, effect="NO_SCHEDULE")
        for key, value in keys.items()
    ]
    return taints or None


def _shielded() -> gcp.container.NodePoolNodeConfigShieldedInstanceConfigArgs:
    return _container.NodePoolNodeConfigShieldedInstanceConfigArgs(
        enable_secure_boot=True, enable_integrity_monitoring=True
    )


def _metadata_server() -> gcp.container.NodePoolNodeConfigWorkloadMetadataConfigArgs:
    return _container.NodePoolNodeConfigWorkloadMetadataConfigArgs(mode="GKE_METADATA")


def _kubelet() -> gcp.container.NodePoolNodeConfigKubeletConfigArgs:
    return _container.NodePoolNodeConfigKubeletConfigArgs(insecure_kubelet_readonly_port_enabled="FALSE")
