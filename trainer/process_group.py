"""Start torch's process group from the launcher's environment variables, also after a restart."""

from __future__ import annotations

import os
from datetime import timedelta

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store  # torch.distributed's own; exported there without types
from torch.distributed.rendezvous import rendezvous

from trainer.setting_rules import invalid_setting

REMEDY = "leave these variables to trainer.launch or torchrun"


def launcher_number(name: str, default: str, *, least: int = 0, below: int | None = None) -> int:
    """Return a number that the launcher sets. Raises ConfigurationError if it is missing or out of range."""
    value = os.environ.get(name, default)
    if value.isascii() and value.isdigit() and least <= int(value) and (below is None or int(value) < below):
        return int(value)
    allowed = f"a number from {least} {'on' if below is None else f'to {below - 1}'}"
    raise invalid_setting(f"${name}", value, allowed, REMEDY)


def init_process_group(backend: str, timeout: timedelta) -> Store:
    """Wait for the other ranks, start the process group and return its store.

    Raises ConfigurationError if the address of rank 0 is not set.
    """
    if not os.environ.get("MASTER_ADDR"):
        raise invalid_setting("$MASTER_ADDR", "", "the address of rank 0", REMEDY)
    launcher_number("MASTER_PORT", "", least=1)
    found: tuple[Store, int, int] = next(rendezvous("env://", timeout=timeout))
    store, rank, world = found
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        # The launcher keeps its store when it restarts its ranks, so separate the keys of each attempt. Without the
        # launcher's store, ranks may have different restart counts.
        store = PrefixStore(f"attempt-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world, timeout=timeout)
    return store
