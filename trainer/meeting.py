"""Where the ranks that torchrun started find each other, also those that it started again."""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store  # torch.distributed's own; exported there without types
from torch.distributed.rendezvous import rendezvous


def meet(backend: str, timeout: timedelta) -> Store:
    """Wait for the other ranks and begin to talk to them; returns the store through which they did."""
    found: tuple[Store, int, int] = next(rendezvous("env://", timeout=timeout))
    store, rank, world = found
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # The launcher keeps its store when it starts its ranks again: what ranks before these wrote must not be
        # read. Where ranks make a store anew, each of them may have been started another number of times.
        store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)
    return store
