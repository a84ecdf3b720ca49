"""Validation of the system pool's machine type, which must fit GKE's pods and the operators. No Pulumi."""

from __future__ import annotations

from collections.abc import Iterator

from infra.gcp.config import GkeConfig
from infra.gcp.pools import system_machine
from infra.hardware.gce import gce_machine
from infra.hardware.zones import NO_E2_ZONES
from settings.problem import Path, Problem

LEAST_VCPUS, LEAST_GIB = 2, 4
"""Size of e2-medium, GKE's default machine type. On one CPU, node agents leave no capacity for kube-dns.

https://cloud.google.com/sdk/gcloud/reference/container/clusters/create#--machine-type,
https://github.com/kubernetes/cloud-provider-gcp/pull/280
"""


def system_pool_problems(config: GkeConfig) -> Iterator[Problem]:
    """Yield the problems of the system pool's settings."""
    path: Path = ("platform", "system_pool")
    pool = config.system_pool
    if pool.max_nodes < pool.nodes:
        yield Problem(
            "gke.system_pool.max_below_nodes",
            (*path, "max_nodes"),
            f"must be at least nodes, {pool.nodes}",
            pool.max_nodes,
        )
    name = system_machine(config)
    try:
        machine = gce_machine(name)
    except ValueError as error:
        yield Problem("gke.system_pool.machine_unknown", (*path, "machine_type"), str(error), name)
        return
    if machine.accelerators:
        message = "has accelerators; write a CPU machine type such as e2-standard-4"
        yield Problem("gke.system_pool.has_accelerators", (*path, "machine_type"), message, name)
    if machine.family == "e2" and config.zone in NO_E2_ZONES:
        yield Problem(
            "gke.system_pool.no_e2", (*path, "machine_type"), f"{config.zone} has no E2; write n1-standard-8", name
        )
    if machine.vcpus < LEAST_VCPUS or machine.memory_gib < LEAST_GIB:
        message = (
            f"has {machine.vcpus} vCPUs and {machine.memory_gib:g} GiB, too little for GKE's own pods and the "
            f"operators; write one with {LEAST_VCPUS} and {LEAST_GIB} or more, such as e2-standard-2"
        )
        yield Problem("gke.system_pool.too_small", (*path, "machine_type"), message, name)
