"""Node configuration of a GKE pool: machine, disks, accelerators, capacity, identity, labels and taints."""

from __future__ import annotations

import pulumi
from pulumi_gcp import container

from infra.gcp.config import GkeConfig
from infra.gcp.pools import NodePoolPlan
from infra.naming import COMPUTE_CLASS_LABEL, POOL_LABEL, QUEUED_LABEL, cloud_labels

SCOPES = ("https://www.googleapis.com/auth/cloud-platform",)
"""OAuth scope. It is the widest, because IAM roles restrict access:
https://cloud.google.com/compute/docs/access/service-accounts#scopes_best_practice"""


def node_config(
    config: GkeConfig, plan: NodePoolPlan, service_account: pulumi.Input[str]
) -> container.NodePoolNodeConfigArgs:
    """Return the configuration of a job pool's nodes, which run as `service_account`."""
    pool = plan.pool
    disks = plan.machine.local_ssds
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
            local_ssd_count=disks
        )
        if disks
        else None,
        shielded_instance_config=shielded(),
        workload_metadata_config=metadata_server(),
        kubelet_config=kubelet(),
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
    """Return GPUs with the driver for GKE to install.

    Without this, GKE installs no driver and the GPUs never become allocatable:
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
    """Return Trainyard's taints. GKE adds the GPU and TPU taints, so do not set them here."""
    keys = {COMPUTE_CLASS_LABEL: plan.pool.name} if plan.has_fallback else {}
    if plan.model.is_queued:
        keys[QUEUED_LABEL] = "true"
    taints = [
        container.NodePoolNodeConfigTaintArgs(key=key, value=value, effect="NO_SCHEDULE") for key, value in keys.items()
    ]
    return taints or None


def shielded() -> container.NodePoolNodeConfigShieldedInstanceConfigArgs:
    """Return settings with which nodes boot only signed software and attest it."""
    return container.NodePoolNodeConfigShieldedInstanceConfigArgs(
        enable_secure_boot=True, enable_integrity_monitoring=True
    )


def metadata_server() -> container.NodePoolNodeConfigWorkloadMetadataConfigArgs:
    """Return the metadata server mode that gives pods their own identity instead of the node's."""
    return container.NodePoolNodeConfigWorkloadMetadataConfigArgs(mode="GKE_METADATA")


def kubelet() -> container.NodePoolNodeConfigKubeletConfigArgs:
    """Return the setting that disables the kubelet's unauthenticated port."""
    return container.NodePoolNodeConfigKubeletConfigArgs(insecure_kubelet_readonly_port_enabled="FALSE")
