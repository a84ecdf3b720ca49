"""SystemNodePool and AcceleratorNodePool: node pools of a GKE cluster, with the configuration of their nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_gcp import compute, container

from infra.gcp.cluster import NodeIdentity
from infra.gcp.config import GkeConfig
from infra.gcp.pools import PODS_PER_NODE, SYSTEM_DISK_GB, NodePoolPlan, system_disk_type, system_machine
from infra.hardware.tpus import GENERATIONS
from infra.naming import COMPUTE_CLASS_LABEL, POOL_LABEL, QUEUED_LABEL, cloud_labels

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
"""Widest OAuth scope, because IAM roles already restrict access:
https://cloud.google.com/compute/docs/access/service-accounts#scopes_best_practice"""
SYSTEM_TIMEOUTS = pulumi.CustomTimeouts(create="45m", update="60m", delete="45m")
ACCELERATOR_TIMEOUTS = pulumi.CustomTimeouts(create="120m", update="120m", delete="60m")
"""Timeouts for accelerators. Nodes with eight H100 have taken over 35 minutes:
https://github.com/NVIDIA/aicr/issues/2065"""


def node_config(
    config: GkeConfig, plan: NodePoolPlan, service_account: pulumi.Input[str]
) -> container.NodePoolNodeConfigArgs:
    """Return the configuration of a job pool's nodes, which run as `service_account`."""
    pool = plan.pool
    local_ssds = plan.machine.local_ssds
    return container.NodePoolNodeConfigArgs(
        machine_type=plan.machine.name,
        disk_size_gb=pool.disk_size_gb,
        disk_type=plan.disk_type,
        image_type="COS_CONTAINERD",
        service_account=service_account,
        oauth_scopes=SCOPES,
        spot=True if plan.model.is_spot else None,
        flex_start=True if plan.model.is_flexible else None,
        max_run_duration=None if plan.max_run_hours is None else f"{plan.max_run_hours * 3600}s",
        reservation_affinity=_reservation(plan),
        guest_accelerators=_gpus(plan),
        gvnic=container.NodePoolNodeConfigGvnicArgs(enabled=True),
        gcfs_config=container.NodePoolNodeConfigGcfsConfigArgs(enabled=config.image_streaming),
        secondary_boot_disks=None
        if pool.preloaded_image_disk is None
        else [
            container.NodePoolNodeConfigSecondaryBootDiskArgs(
                disk_image=pool.preloaded_image_disk, mode="CONTAINER_IMAGE_CACHE"
            )
        ],
        ephemeral_storage_local_ssd_config=container.NodePoolNodeConfigEphemeralStorageLocalSsdConfigArgs(
            local_ssd_count=local_ssds
        )
        if local_ssds
        else None,
        shielded_instance_config=shielded_instance(),
        workload_metadata_config=workload_metadata(),
        kubelet_config=kubelet_config(),
        labels=_labels(plan),
        taints=_taints(plan),
        resource_labels=cloud_labels(config.cluster_label),
    )


def _reservation(plan: NodePoolPlan) -> container.NodePoolNodeConfigReservationAffinityArgs | None:
    """Return the reservation settings: https://cloud.google.com/kubernetes-engine/docs/how-to/consuming-reservations"""
    if name := plan.model.reservation:
        return container.NodePoolNodeConfigReservationAffinityArgs(
            consume_reservation_type="SPECIFIC_RESERVATION",
            key="compute.googleapis.com/reservation-name",
            values=[name],
        )
    if plan.model.is_flexible:
        return container.NodePoolNodeConfigReservationAffinityArgs(consume_reservation_type="NO_RESERVATION")
    return None


def _gpus(plan: NodePoolPlan) -> list[container.NodePoolNodeConfigGuestAcceleratorArgs] | None:
    """Return the GPUs of a node, with the driver version that GKE installs.

    Without a version, GKE does not install a driver and the GPUs never become allocatable:
    https://github.com/GoogleCloudPlatform/container-engine-accelerators/issues/407
    """
    if plan.gpu is None:
        return None
    driver = container.NodePoolNodeConfigGuestAcceleratorGpuDriverInstallationConfigArgs(
        gpu_driver_version=plan.gpu_driver.upper()
    )
    return [
        container.NodePoolNodeConfigGuestAcceleratorArgs(
            type=plan.gpu, count=plan.gpus, gpu_driver_installation_config=driver
        )
    ]


def _labels(plan: NodePoolPlan) -> dict[str, str]:
    labels = {POOL_LABEL: plan.pool.name}
    if plan.has_fallback:
        labels[COMPUTE_CLASS_LABEL] = plan.pool.name
    if plan.model.is_queued:
        labels[QUEUED_LABEL] = "true"
    return labels


def _taints(plan: NodePoolPlan) -> list[container.NodePoolNodeConfigTaintArgs] | None:
    """Return Trainyard's taints. GKE itself adds the GPU and TPU taints."""
    values = {COMPUTE_CLASS_LABEL: plan.pool.name} if plan.has_fallback else {}
    if plan.model.is_queued:
        values[QUEUED_LABEL] = "true"
    taints = [
        container.NodePoolNodeConfigTaintArgs(key=key, value=value, effect="NO_SCHEDULE")
        for key, value in values.items()
    ]
    return taints or None


def shielded_instance() -> container.NodePoolNodeConfigShieldedInstanceConfigArgs:
    """Return settings that make nodes boot only signed software and attest it."""
    return container.NodePoolNodeConfigShieldedInstanceConfigArgs(
        enable_secure_boot=True, enable_integrity_monitoring=True
    )


def workload_metadata() -> container.NodePoolNodeConfigWorkloadMetadataConfigArgs:
    """Return the metadata server mode that gives pods their own identity instead of the node's."""
    return container.NodePoolNodeConfigWorkloadMetadataConfigArgs(mode="GKE_METADATA")


def kubelet_config() -> container.NodePoolNodeConfigKubeletConfigArgs:
    """Return the setting that disables the kubelet's unauthenticated port."""
    return container.NodePoolNodeConfigKubeletConfigArgs(insecure_kubelet_readonly_port_enabled="FALSE")


class SystemNodePool(pulumi.ComponentResource):
    """On-demand nodes in one zone, for system pods."""

    ready: pulumi.Output[str]
    """Id of the pool, known once it has its nodes."""

    def __init__(
        self,
        name: str,
        *,
        project: pulumi.Input[str],
        cluster: pulumi.Input[str],
        account: NodeIdentity,
        config: GkeConfig,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("trainyard:gcp:SystemNodePool", name, None, opts)
        pool = config.system_pool
        nodes = container.NodePool(
            f"{name}-nodes",
            name="system",
            project=project,
            cluster=cluster,
            location=config.location,
            node_locations=[config.zone],
            initial_node_count=pool.nodes,
            autoscaling=container.NodePoolAutoscalingArgs(
                min_node_count=pool.nodes, max_node_count=pool.max_nodes, location_policy="BALANCED"
            ),
            management=container.NodePoolManagementArgs(auto_repair=True, auto_upgrade=True),
            upgrade_settings=container.NodePoolUpgradeSettingsArgs(strategy="SURGE", max_surge=1, max_unavailable=0),
            network_config=container.NodePoolNetworkConfigArgs(enable_private_nodes=True),
            node_config=container.NodePoolNodeConfigArgs(
                machine_type=system_machine(config),
                disk_size_gb=SYSTEM_DISK_GB,
                disk_type=system_disk_type(config),
                image_type="COS_CONTAINERD",
                service_account=account.email,
                oauth_scopes=SCOPES,
                gcfs_config=container.NodePoolNodeConfigGcfsConfigArgs(enabled=config.image_streaming),
                shielded_instance_config=shielded_instance(),
                workload_metadata_config=workload_metadata(),
                kubelet_config=kubelet_config(),
                labels={POOL_LABEL: "system"},
                resource_labels=cloud_labels(config.cluster_label),
            ),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=[account],
                custom_timeouts=SYSTEM_TIMEOUTS,
                delete_before_replace=True,
                # The autoscaler changes the node count after creation.
                ignore_changes=["initialNodeCount", "nodeCount"],
            ),
        )
        self.ready = nodes.id
        self.register_outputs({"ready": self.ready})


@dataclass(frozen=True, kw_only=True)
class AcceleratorNodePoolArgs:
    """Inputs of `AcceleratorNodePool`."""

    project: pulumi.Input[str]
    cluster: pulumi.Input[str]
    service_account: pulumi.Input[str]
    """E-mail address of the service account of the nodes."""
    config: GkeConfig
    plan: NodePoolPlan
    networks: Sequence[tuple[str, str]]
    """Names of each node's additional VPCs and their subnets, for GPUs with their own network interfaces.

    Pass plain text instead of the networks' outputs: these are unknown while Pulumi replaces a VPC, and the provider
    panics on an unknown `networkConfig` of an existing pool
    (google-beta/services/container/resource_container_node_pool.go:2231 of terraform-provider-google-beta).
    """
    after: Sequence[pulumi.Resource] = ()
    """Resources that must exist first."""


class AcceleratorNodePool(pulumi.ComponentResource):
    """Nodes for jobs: GPU nodes, a TPU slice, single TPU hosts, or CPU nodes."""

    name: pulumi.Output[str]

    def __init__(self, name: str, args: AcceleratorNodePoolArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:gcp:AcceleratorNodePool", name, None, opts)
        plan = args.plan
        pool = container.NodePool(
            f"{name}-nodes",
            name=plan.name,
            project=args.project,
            cluster=args.cluster,
            location=args.config.location,
            node_locations=list(plan.zones),
            # GKE counts nodes per zone.
            node_count=plan.nodes // len(plan.zones) if plan.min_nodes is None else None,
            initial_node_count=_initial_nodes(plan),
            autoscaling=_autoscaling(plan),
            management=container.NodePoolManagementArgs(
                # Dynamic Workload Scheduler rejects auto-repair. Elsewhere, auto-repair recreates a whole broken slice.
                auto_repair=not plan.model.is_flexible,
                auto_upgrade=True,
            ),
            upgrade_settings=_upgrade_settings(plan),
            max_pods_per_node=PODS_PER_NODE,
            network_config=container.NodePoolNetworkConfigArgs(
                enable_private_nodes=True,
                additional_node_network_configs=[
                    container.NodePoolNetworkConfigAdditionalNodeNetworkConfigArgs(network=network, subnetwork=subnet)
                    for network, subnet in args.networks
                ],
            ),
            placement_policy=self._placement(name, args),
            queued_provisioning=container.NodePoolQueuedProvisioningArgs(enabled=True)
            if plan.model.is_queued
            else None,
            node_config=node_config(args.config, plan, args.service_account),
            opts=pulumi.ResourceOptions(
                parent=self,
                depends_on=list(args.after),
                custom_timeouts=ACCELERATOR_TIMEOUTS if plan.machine.accelerators or plan.gpu else SYSTEM_TIMEOUTS,
                # Delete the pool first: the cloud may not have a second set of accelerators.
                delete_before_replace=True,
                replace_on_changes=_replace_on_changes(plan),
                ignore_changes=[] if plan.min_nodes is None else ["initialNodeCount", "nodeCount"],
            ),
        )
        self.name = pool.name
        self.register_outputs({"name": self.name})

    def _placement(self, name: str, args: AcceleratorNodePoolArgs) -> container.NodePoolPlacementPolicyArgs | None:
        """Return the placement policy of the nodes, or None for nodes that need none, such as single TPU hosts.

        https://cloud.google.com/kubernetes-engine/docs/how-to/tpus, https://github.com/AI-Hypercomputer/xpk/pull/825
        """
        plan = args.plan
        if plan.compact:
            return container.NodePoolPlacementPolicyArgs(type="COMPACT")
        if plan.tpu is None or not plan.multi_host:
            return None
        if not GENERATIONS[plan.tpu.generation].workload_policy:
            return container.NodePoolPlacementPolicyArgs(type="COMPACT", tpu_topology=plan.tpu.topology_label)
        policy = compute.ResourcePolicy(
            f"{name}-workload-policy",
            name=f"{args.config.name}-{plan.name}"[:63].rstrip("-"),
            project=args.project,
            region=args.config.region,
            workload_policy=compute.ResourcePolicyWorkloadPolicyArgs(
                type="HIGH_THROUGHPUT", accelerator_topology=plan.tpu.topology_label
            ),
            # Without this, the provider would send a change of the name to a URL that does not exist
            # (google-beta/services/compute/resource_compute_resource_policy.go:784 of terraform-provider-google-beta).
            opts=pulumi.ResourceOptions(parent=self, replace_on_changes=["name"]),
        )
        return container.NodePoolPlacementPolicyArgs(type="COMPACT", policy_name=policy.name)


def _initial_nodes(plan: NodePoolPlan) -> int | None:
    """Return the initial nodes per zone: the minimum, but not more than the maximum. None for a fixed size."""
    if plan.min_nodes is None:
        return None
    zones = len(plan.zones)
    return min(-(-plan.min_nodes // zones), plan.nodes // zones)


def _autoscaling(plan: NodePoolPlan) -> container.NodePoolAutoscalingArgs | None:
    """Return the bounds of the number of nodes, or None if it is fixed.

    GKE ignores total bounds for a multi-host slice: https://github.com/vllm-project/ci-infra/pull/545
    """
    if plan.min_nodes is None:
        return None
    if plan.multi_host:
        return container.NodePoolAutoscalingArgs(
            min_node_count=plan.min_nodes, max_node_count=plan.nodes, location_policy="ANY"
        )
    return container.NodePoolAutoscalingArgs(
        total_min_node_count=plan.min_nodes, total_max_node_count=plan.nodes, location_policy="ANY"
    )


def _replace_on_changes(plan: NodePoolPlan) -> list[str]:
    """Return the inputs whose changes must replace the pool, although the provider plans an update.

    The provider never sends a new `tpuTopology` to Google. The field is not ForceNew, and nodePoolUpdate does not
    handle it (google-beta/services/container/resource_container_node_pool.go:390 of terraform-provider-google-beta).
    The topology and machine type of a slice must match:
    https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus
    """
    return ["placementPolicy", *(["nodeConfig.machineType"] if plan.tpu else [])]


def _upgrade_settings(plan: NodePoolPlan) -> container.NodePoolUpgradeSettingsArgs | None:
    """Return the upgrade settings, or None for Dynamic Workload Scheduler nodes.

    The provider accepts only SURGE and BLUE_GREEN (google-beta/services/container/resource_container_node_pool.go:471
    of terraform-provider-google-beta). GKE forces SHORT_LIVED on these pools:
    https://github.com/crossplane-contrib/provider-upjet-gcp/pull/1029,
    https://cloud.google.com/kubernetes-engine/docs/concepts/node-pool-upgrade-strategies#short-lived-upgrades-flex-start
    """
    if plan.model.is_flexible:
        return None
    # The cloud may not have spare accelerators for surge nodes.
    return container.NodePoolUpgradeSettingsArgs(strategy="SURGE", max_surge=0, max_unavailable=1)
