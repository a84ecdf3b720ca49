"""Scheduling: what the pods of a job say to get onto nodes that have its accelerators, on each platform. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from infra.aws.config import EksConfig
from infra.aws.pools import node_groups
from infra.config import LocalConfig, PlatformConfig
from infra.gcp.config import GkeConfig
from infra.gcp.fabrics import fabric_of, pod_annotations
from infra.gcp.pools import NodePoolPlan, node_pools
from infra.hardware import gpus, tpus
from infra.hardware.host_profile import HostProfile
from infra.hardware.tpus import TpuSlice, is_tpu, tpu_slice
from infra.naming import ACCELERATOR_LABEL, COMPUTE_CLASS_LABEL, POOL_LABEL, QUEUED_LABEL

GPU_LABEL = "cloud.google.com/gke-accelerator"
TPU_LABEL = "cloud.google.com/gke-tpu-accelerator"
TOPOLOGY_LABEL = "cloud.google.com/gke-tpu-topology"
DRIVER_LIBRARIES = {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"}
"""Where GKE's device plugin puts the driver's libraries, which the trainer's image does not look for by itself.

https://cloud.google.com/kubernetes-engine/docs/how-to/gpus#cuda
"""
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
    profile: HostProfile | None = None
    """What programs are started from, where the hosts have it."""


def scheduling(
    platform: PlatformConfig,
    accelerator: str | None,
    topology: str | None = None,
    *,
    pool: str | None = None,
    gpus_per_host: int = 0,
) -> Scheduling:
    """What a job's pods say on a platform to get its accelerators; no `gpus_per_host` means all that a node has.

    With a `pool` they say that too: a host that fits in several pools could take a node that another job needs whole.
    A host that takes a part of a node's GPUs gets that part of its network adapters, rounded down: whoever has the
    rest of the GPUs gets the rest of the adapters.

    Labels and taints: https://cloud.google.com/kubernetes-engine/docs/how-to/tpus,
    https://cloud.google.com/kubernetes-engine/docs/how-to/gpus. Raises ValueError where the platform has none of them.
    """
    if accelerator is None:
        return Scheduling(node_selector=_in_pool(pool))
    found = tpu_slice(accelerator, topology) if is_tpu(accelerator) else None
    if isinstance(platform, LocalConfig):
        raise ValueError("the cluster on this machine has CPUs only")
    if isinstance(platform, GkeConfig):
        return _gke(platform, accelerator, found, pool)
    if isinstance(platform, EksConfig):
        return _eks(platform, accelerator, pool, gpus_per_host)
    # A cluster of the user's own: TPUs are on GKE alone, while GPUs may carry any label.
    if found is not None:
        return Scheduling(
            node_selector=_slice_labels(found),
            tolerations=(_tolerate(tpus.RESOURCE),),
            accelerator_resource=tpus.RESOURCE,
        )
    return Scheduling(tolerations=(_tolerate(gpus.RESOURCE),), accelerator_resource=gpus.RESOURCE)


def gke_pool_for(
    platform: GkeConfig, accelerator: str, found: TpuSlice | None, pool: str | None = None
) -> NodePoolPlan | None:
    """The first node pool that has a job's accelerators, of the pool if one is given."""
    for plan in node_pools(platform):
        if pool not in (None, plan.pool.name):
            continue
        if plan.tpu == found and (found is not None or plan.gpu == accelerator):
            return plan
    return None


def _gke(platform: GkeConfig, accelerator: str, found: TpuSlice | None, pool: str | None) -> Scheduling:
    plan = gke_pool_for(platform, accelerator, found, pool)
    if plan is None:
        raise ValueError(f"no pool has {accelerator}")
    resource = gpus.RESOURCE if found is None else tpus.RESOURCE
    selector = _in_pool(pool) | ({GPU_LABEL: accelerator} if found is None else _slice_labels(found))
    tolerations = [_tolerate(resource)]
    if plan.ladder:
        selector[COMPUTE_CLASS_LABEL] = plan.pool.name
        tolerations.append(_tolerate(COMPUTE_CLASS_LABEL))
    if "queued" in plan.pool.capacity:
        tolerations.append(_tolerate(QUEUED_LABEL))
    fabric = fabric_of(plan)
    return Scheduling(
        node_selector=selector,
        tolerations=tuple(tolerations),
        accelerator_resource=resource,
        annotations=pod_annotations(fabric.interfaces) if fabric else {},
        environment=DRIVER_LIBRARIES if found is None else {},
        profile=fabric.profile if fabric else None,
    )


def _eks(platform: EksConfig, accelerator: str, pool: str | None, gpus_per_host: int) -> Scheduling:
    suitable = (plan for plan in node_groups(platform) if plan.machine.gpu == accelerator)
    plan = next((plan for plan in suitable if pool in (None, plan.name)), None)
    if plan is None:
        raise ValueError(f"no pool has {accelerator}")
    machine = plan.machine
    adapters = machine.efa_interfaces * (gpus_per_host or machine.gpus) // machine.gpus if plan.efa else 0
    return Scheduling(
        node_selector=_in_pool(pool) | {ACCELERATOR_LABEL: accelerator},
        tolerations=(_tolerate(gpus.RESOURCE),),
        accelerator_resource=gpus.RESOURCE,
        devices={EFA_RESOURCE: str(adapters)} if adapters else {},
    )


def _in_pool(pool: str | None) -> dict[str, str]:
    return {} if pool is None else {POOL_LABEL: pool}


def _slice_labels(found: TpuSlice) -> dict[str, str]:
    return {TPU_LABEL: found.gke_accelerator, TOPOLOGY_LABEL: found.topology_label}


def _tolerate(key: str) -> dict[str, str]:
    return {"key": key, "operator": "Exists", "effect": "NoSchedule"}
