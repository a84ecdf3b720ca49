"""Faults to inject, each once: `KIND:TYPE`, `KIND:TYPE:NAME` or `KIND:NUMBER`.

TYPE is part of a resource's type. NAME is a resource's name, or the part of it before a `-`, such as a pool's name.
NUMBER counts the calls that change something.
"""

from __future__ import annotations

import re

from simulation.cloud.state import CloudState

ABOUT_TYPES = ("stockout", "quota", "timeout", "slow", "crash", "eventual", "leak")
ABOUT_CALLS = ("denied", "crash")
"""Faults that accept the number of the call at which they happen."""
SLOW_FACTOR = 20
"""Factor by which a slow creation takes longer."""
MESSAGES = {
    "stockout": "ZONE_RESOURCE_POOL_EXHAUSTED: the zone has not enough resources available to fulfill the request",
    "quota": "QUOTA_EXCEEDED: the quota of this region is used up",
    "denied": "PERMISSION_DENIED: the caller does not have permission",
}


_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


def check(fault: str) -> str:
    """Return the fault if it is valid. Raises ValueError with the valid faults otherwise."""
    kind, _, target = fault.partition(":")
    word, colon, name = target.partition(":")
    known = kind in (ABOUT_CALLS if target.isdecimal() else ABOUT_TYPES)
    if fault and not (known and word.isalnum() and (not colon or _NAME.fullmatch(name))):
        kinds = ", ".join(f"{each}:RESOURCE" for each in ABOUT_TYPES)
        first = ABOUT_TYPES[0]
        raise ValueError(
            f"FAULT={fault}: must be one of {kinds}, denied:NUMBER, crash:NUMBER; write "
            f"{first}:nodepool, or {first}:nodepool:gpus for the pool gpus"
        )
    return fault


def strikes(state: CloudState, kind: str, type_: str, urn: str) -> bool:
    """Return True if the fault of this kind happens to this resource now, and clear the fault."""
    wanted, _, target = state.fault.partition(":")
    if wanted != kind:
        return False
    word, _, name = target.partition(":")
    resource = urn.rpartition("::")[2]
    is_named = not name or resource == name or resource.startswith(f"{name}-")
    is_typed = word.lower() in type_.rpartition(":")[2].lower()
    hit = state.calls == int(target) if target.isdecimal() else is_typed and is_named
    if hit:
        state.fault = ""
    return hit
