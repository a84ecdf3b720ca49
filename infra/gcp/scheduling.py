"""Scheduling of pods onto the accelerators of GKE node pools. No Pulumi.

Labels and taints: https://cloud.google.com/kubernetes-engine/docs/how-to/tpus,
https://cloud.google.com/kubernetes-engine/docs/how-to/gpus
"""

from __future__ import annotations

from infra.gcp.config import GkeConfig
from infra.gcp.fabrics import fabric_of, pod_annotations
from infra.gcp.pools import NodePoolPlan, node_pools
from infra.hardware import gpus, tpus
from infra.hardware.tpus import TpuSlice
from infra.naming import COMPUTE_CLASS_LABEL, QUEUED_LABEL
from infra.scheduling import Scheduling, in_pool, slice_labels, tolerate

GPU_LABEL = "cloud.google.com/gke-accelerator"
DRIVER_LIBRARIES = {"LD_LIBRARY_PATH": "/usr/local/nvidia/lib64"}
"""Folder of the NVIDIA driver on GKE nodes, which the trainer image does not search by default.

https://cloud.google.com/kubernetes-engine/docs/how-to/gpus#cuda
"""


def gke_pool_for(
    platform: GkeConfig, accelerator: str, found: TpuSlice | None, pool: str | None = None
) -> NodePoolPlan | None:
    """Return the first node pool with a job's accelerators, of `pool` if given, or None."""
    for plan in node_pools(platform):
        if pool not in (None, plan.pool.name):
            continue
        if plan.tpu == found and (found is not None or plan.gpu == accelerator):
            return plan
    return None


def scheduling(platform: GkeConfig, accelerator: str, found: TpuSlice | None, pool: str | None) -> Scheduling:
    """Return the scheduling fields of a job's pods. Raises ValueError if no pool has its accelerators."""
    plan = gke_pool_for(platform, accelerator, found, pool)
    if plan is None:
        raise ValueError(f"no pool has {accelerator}")
    resource = gpus.RESOURCE if found is None else tpus.RESOURCE
    selector = in_pool(pool) | ({GPU_LABEL: accelerator} if found is None else slice_labels(found))
    tolerations = [tolerate(resource)]
    if plan.has_fallback:
        selector[COMPUTE_CLASS_LABEL] = plan.pool.name
        tolerations.append(tolerate(COMPUTE_CLASS_LABEL))
    if any(each.is_queued for each in plan.pool.models):
        tolerations.append(tolerate(QUEUED_LABEL))
    fabric = fabric_of(plan)
    return Scheduling(
        node_selector=selector,
        tolerations=tuple(tolerations),
        accelerator_resource=resource,
        annotations=pod_annotations(fabric.interfaces) if fabric else {},
        environment=DRIVER_LIBRARIES if found is None else {},
        profile=fabric.profile if fabric else None,
    )
