"""Faults on request, each once: `KIND:TARGET`, where the target is part of a resource's type, or a number of calls."""

from __future__ import annotations

from rehearsal.cloud.state import CloudState

ABOUT_TYPES = ("stockout", "quota", "timeout", "slow", "crash", "eventual", "leak")
ABOUT_CALLS = ("denied", "crash")
"""Those that can be told the number of the call that they happen at."""
SLOW_FACTOR = 20
"""How many times longer a slow creation takes."""
MESSAGES = {
    "stockout": "ZONE_RESOURCE_POOL_EXHAUSTED: the zone has not enough resources available to fulfill the request",
    "quota": "QUOTA_EXCEEDED: the quota of this region is used up",
    "denied": "PERMISSION_DENIED: the caller does not have permission",
}


def check(fault: str) -> str:
    """The fault as it was asked; raises ValueError that says which there are."""
    kind, _, target = fault.partition(":")
    known = kind in (ABOUT_CALLS if target.isdecimal() else ABOUT_TYPES)
    if fault and not (known and target.isalnum()):
        kinds = ", ".join(f"{each}:RESOURCE" for each in ABOUT_TYPES)
        raise ValueError(
            f"FAULT={fault}: write one of {kinds} (such as {ABOUT_TYPES[0]}:nodepool), or denied:NUMBER, crash:NUMBER"
        )
    return fault


def strikes(state: CloudState, kind: str, type_: str) -> bool:
    """Whether the fault of this kind happens now to a resource of this type; it does not happen again."""
    wanted, _, target = state.fault.partition(":")
    if wanted != kind:
        return False
    hit = state.calls == int(target) if target.isdecimal() else target.lower() in type_.rpartition(":")[2].lower()
    if hit:
        state.fault = ""
    return hit
