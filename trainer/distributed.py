"""Start torch's process group, and access the parts of tensors that are sharded over ranks (torch's DTensor)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store  # torch.distributed exports them without types
from torch.distributed.rendezvous import rendezvous

from trainer.rules import invalid_setting

REMEDY = "let trainer.launch or torchrun set this variable"
PORT = "29500"
"""Port of the store on host 0, torchrun's default."""


def launcher_number(name: str, default: str, *, least: int = 0, below: int | None = None) -> int:
    """Return the number in a variable of the launcher, else `default`. Raises ConfigurationError if out of range."""
    value = os.environ.get(name, default)
    if value.isascii() and value.isdigit() and least <= int(value) and (below is None or int(value) < below):
        return int(value)
    allowed = f"a number from {least} {'on' if below is None else f'to {below - 1}'}"
    raise invalid_setting(f"${name}", value, allowed, REMEDY)


def init_process_group(backend: str, timeout: timedelta) -> Store:
    """Wait for the other ranks, start the process group and return its store.

    Raises ConfigurationError if the address of rank 0 is not set, or its port is invalid.
    """
    if not os.environ.get("MASTER_ADDR"):
        raise invalid_setting("$MASTER_ADDR", "", "the address of rank 0", REMEDY)
    launcher_number("MASTER_PORT", "", least=1)
    found: tuple[Store, int, int] = next(rendezvous("env://", timeout=timeout))
    store, rank, world = found
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # The launcher keeps its store when it restarts its ranks, so separate the keys of each attempt. Do this only
        # with the launcher's store: otherwise ranks may have different restart counts.
        store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)
    return store


def rendezvous_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return RANK, WORLD_SIZE and the address of host 0 for TPU hosts with one rank each. Empty on a single host.

    GKE sets TPU_WORKER_HOSTNAMES, and TPU_WORKER_ID from 0 in each slice, in the pods of an Indexed Job with TPUs. Jobs
    of several slices also have MEGASCALE_* variables:
    https://cloud.google.com/kubernetes-engine/docs/how-to/tpu-multislice
    """
    names = [name for name in environment.get("TPU_WORKER_HOSTNAMES", "").split(",") if name]
    world = len(names) * int(environment.get("MEGASCALE_NUM_SLICES", "1"))
    if world <= 1:
        return {}
    rank = int(environment.get("MEGASCALE_SLICE_ID", "0")) * len(names) + int(environment["TPU_WORKER_ID"])
    first = environment.get("MEGASCALE_COORDINATOR_ADDRESS", names[0]).partition(":")[0]
    return {"RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": first, "MASTER_PORT": PORT}


def is_sharded(tensor: torch.Tensor) -> bool:
    """Return True if each rank has a part of this tensor."""
    return hasattr(tensor, "placements")


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor: all of it, unless it is sharded."""
    return cast("Any", tensor).to_local() if is_sharded(tensor) else tensor


def with_local_part(like: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """Return a tensor that is sharded like `like`, with `local` as this rank's part. Return `local` if `like` is whole.

    `local` may be on another device than `like`, which DTensor.from_local does not allow.
    """
    if not is_sharded(like):
        return local
    from torch.distributed.tensor import DTensor

    make: Any = DTensor
    return cast("torch.Tensor", make(local, cast("Any", like)._spec, requires_grad=False))


def own_part(tensor: torch.Tensor) -> tuple[slice, ...]:
    """Return the place of this rank's part in the whole tensor: one slice for each dimension."""
    if not is_sharded(tensor):
        return tuple(slice(0, size) for size in tensor.shape)
    # Imported here because a rank with whole tensors does not need it.
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    whole: Any = tensor
    shape, offset = compute_local_shape_and_global_offset(whole.shape, whole.device_mesh, whole.placements)
    return tuple(slice(start, start + size) for start, size in zip(offset, shape, strict=True))
