"""Scheduling: what the pods of a job need to get onto nodes with its accelerators. No Pulumi."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infra.hardware import tpus
from infra.hardware.nccl_environment_script import NcclEnvironmentScript
from infra.hardware.tpus import TpuSlice
from infra.naming import POOL_LABEL

TPU_LABEL = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY_LABEL = "cloud.google.com/gke-tpu-topology"
EFA_RESOURCE = "vpc.amazonaws.com/efa"
"""https://github.com/aws/eks-charts/tree/master/stable/aws-efa-k8s-device-plugin"""


@dataclass(frozen=True, kw_only=True)
class Scheduling:
    """What the pods of a job say; all of it is empty for a job on CPU."""

    node_selector: Mapping[str, str] = field(default_factory=dict)
    """Labels of the nodes."""
    tolerations: Sequence[Mapping[str, str]] = ()
    """Taints of those nodes, each with Kubernetes' own keys."""
    accelerator_resource: str | None = None
    """Kubernetes resource that the accelerators are asked as."""
    annotations: Mapping[str, str] = field(default_factory=dict)
    """Annotations of the pods: the networks of their accelerators."""
    devices: Mapping[str, str] = field(default_factory=dict)
    """Further resources of each host and how many of them: its network adapters."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that programs of the trainer's image need on such nodes."""
    profile: NcclEnvironmentScript | None = None
    """What programs are started from, where the hosts have it."""


def in_pool(pool: str | None) -> dict[str, str]:
    """Return the node label of a pool; empty for any pool."""
    return {} if pool is None else {POOL_LABEL: pool}


def slice_labels(found: TpuSlice) -> dict[str, str]:
    """Return the node labels that GKE gives to the hosts of a TPU slice."""
    return {TPU_LABEL: found.gke_accelerator, TOPOLOGY_LABEL: found.topology_label}


def tolerate(key: str) -> dict[str, str]:
    """Return a toleration of a NoSchedule taint with any value."""
    return {"key": key, "operator": "Exists", "effect": "NoSchedule"}


def tpu_scheduling(found: TpuSlice) -> Scheduling:
    """Return what pods need for a TPU slice on nodes that are labelled as GKE labels them."""
    return Scheduling(
        node_selector=slice_labels(found),
        tolerations=(tolerate(tpus.RESOURCE),),
        accelerator_resource=tpus.RESOURCE,
    )
