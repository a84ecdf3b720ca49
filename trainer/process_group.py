"""Where the ranks that torchrun started find each other, also those that it started again."""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store  # torch.distributed's own; exported there without types
from torch.distributed.rendezvous import rendezvous

from trainer.setting_rules import refusal

REMEDY = "leave these variables to trainer.launch or torchrun"


def from_launcher(name: str, default: str, *, least: int = 0, below: int | None = None) -> int:
    """A number that a launcher sets; raises ConfigurationError for what is none, or too small or large."""
    said = os.environ.get(name, default)
    if said.isascii() and said.isdigit() and least <= int(said) and (below is None or int(said) < below):
        return int(said)
    allowed = f"a number from {least} {'on' if below is None else f'to {below - 1}'}"
    raise refusal(f"${name}", said, allowed, REMEDY)


def meet(backend: str, timeout: timedelta) -> Store:
    """Wait for the other ranks and begin to talk to them; returns the store through which they did.

    Raises ConfigurationError where nothing says where they meet.
    """
    if not os.environ.get("MASTER_ADDR"):
        raise refusal("$MASTER_ADDR", "", "where rank 0 listens", REMEDY)
    from_launcher("MASTER_PORT", "", least=1)
    found: tuple[Store, int, int] = next(rendezvous("env://", timeout=timeout))
    store, rank, world = found
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # The launcher keeps its store when it starts its ranks again: what ranks before these wrote must not be
        # read. Where ranks make a store anew, each of them may have been started another number of times.
        store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)
    return store
