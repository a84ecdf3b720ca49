"""Start torch's process group from the launcher's environment variables, also after a restart."""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store  # torch.distributed's own; exported there without types
from torch.distributed.rendezvous import rendezvous

from trainer.setting_rules import refusal

REMEDY = "leave these variables to trainer.launch or torchrun"


def from_launcher(name: str, default: str, *, least: int = 0, below: int | None = None) -> int:
    """Return a number that the launcher sets. Raises ConfigurationError if it is missing or out of range."""
    said = os.environ.get(name, default)
    if said.isascii() and said.isdigit() and least <= int(said) and (below is None or int(said) < below):
        return int(said)
    allowed = f"a number from {least} {'on' if below is None else f'to {below - 1}'}"
    raise refusal(f"${name}", said, allowed, REMEDY)


def meet(backend: str, timeout: timedelta) -> Store:
    """Wait for the other ranks, start the process group and return its store.

    Raises ConfigurationError if the address of rank 0 is not set.
    """
    if not os.environ.get("MASTER_ADDR"):
        raise refusal("$MASTER_ADDR", "", "the address of rank 0", REMEDY)
    from_launcher("MASTER_PORT", "", least=1)
    found: tuple[Store, int, int] = next(rendezvous("env://", timeout=timeout))
    store, rank, world = found
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # The launcher keeps its store when it restarts its ranks, so separate the keys of each attempt. Without the
        # launcher's store, ranks may have different restart counts.
        store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)
    return store
