"""Scheduling: node constraints and accelerator resources of a job's pods. No Pulumi."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infra.hardware import tpus
from infra.hardware.machines import NcclEnvironmentScript
from infra.hardware.tpus import TpuSlice
from infra.naming import POOL_LABEL

TPU_LABEL = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY_LABEL = "cloud.google.com/gke-tpu-topology"
EFA_RESOURCE = "vpc.amazonaws.com/efa"
"""Resource name of EFA adapters: https://github.com/aws/eks-charts/tree/master/stable/aws-efa-k8s-device-plugin"""


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """Scheduling fields of a job's pods. All are empty for a job on CPU."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes."""
    tolerations: Sequence[Mapping[str, str]] = ()
    """Tolerations in Kubernetes' format."""
    accelerator_resource: str | None = None
    """Kubernetes resource of the accelerators."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the pods, with the networks of their accelerators."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """Further resources of each host with their counts, such as network adapters."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that programs in the trainer image need on these nodes."""
    nccl_environment: NcclEnvironmentScript | None = None
    """Script that sets NCCL's environment, on hosts that have one."""


def in_pool(pool: str | None) -> dict[str, str]:
    """Return the node selector of a pool; empty for any pool."""
    return {} if pool is None else {POOL_LABEL: pool}


def slice_labels(tpu: TpuSlice) -> dict[str, str]:
    """Return the labels that GKE puts on the nodes of a TPU slice."""
    return {TPU_LABEL: tpu.gke_accelerator, TOPOLOGY_LABEL: tpu.topology_label}


def tolerate(key: str) -> dict[str, str]:
    """Return a toleration of a NoSchedule taint with any value."""
    return {"key": key, "operator": "Exists", "effect": "NoSchedule"}


def tpu_scheduling(tpu: TpuSlice) -> Scheduling:
    """Return the scheduling fields for a TPU slice, with GKE's node labels."""
    return Scheduling(
        node_selector=slice_labels(tpu),
        tolerations=(tolerate(tpus.RESOURCE),),
        accelerator_resource=tpus.RESOURCE,
    )
