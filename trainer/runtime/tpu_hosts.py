"""Rendezvous of TPU hosts: torch.distributed's variables from the ones that GKE sets in a pod. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping

PORT = "29500"
"""Port of the store on host 0. It is torchrun's default port."""


def rendezvous_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return RANK, WORLD_SIZE and the address of host 0, with one rank per host. Empty on a single host.

    GKE sets TPU_WORKER_ID and TPU_WORKER_HOSTNAMES in each pod of an Indexed Job with TPUs, numbered from 0 in each
    slice. Several slices find each other by MEGASCALE_* variables:
    https://cloud.google.com/kubernetes-engine/docs/how-to/tpu-multislice
    """
    names = [name for name in environment.get("TPU_WORKER_HOSTNAMES", "").split(",") if name]
    slices = int(environment.get("MEGASCALE_NUM_SLICES", "1"))
    world = len(names) * slices
    if world <= 1:
        return {}
    rank = int(environment.get("MEGASCALE_SLICE_ID", "0")) * len(names) + int(environment["TPU_WORKER_ID"])
    first = environment.get("MEGASCALE_COORDINATOR_ADDRESS", names[0]).partition(":")[0]
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": first, "MASTER_PORT": PORT}
