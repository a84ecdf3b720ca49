"""Operations of the simulated cloud: create, update, read and delete, with their errors and faults."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from infra.make_command import option_text
from settings.problem import dotted
from simulation.cloud.checking import counted_outputs, kind_of, new_outputs
from simulation.cloud.model import (
    CloudState,
    Kind,
    Operation,
    Properties,
    SimulatedResource,
    edit_state,
    hex_digits,
    key,
    read_state,
    references_of,
    rendered,
    without_internal,
)

TYPE_FAULTS = ("stockout", "quota", "timeout", "slow", "crash", "eventual", "leak")
"""Faults that accept a part of a resource type."""
CALL_FAULTS = ("denied", "crash")
"""Faults that accept the number of the call at which they happen."""
SLOW_FACTOR = 20
"""Factor by which a slow creation takes longer."""
DELETION_SPEEDUP = 500
"""Simulated seconds of a deletion per real second. Deletions take real time and run in parallel. As in a real cloud,
the deletion of a network fails until the deletions of its node pools have ended."""
FAULT_MESSAGES = {
    "stockout": "ZONE_RESOURCE_POOL_EXHAUSTED: the zone has too few resources for the request",
    "quota": "QUOTA_EXCEEDED: the quota of this region is used up",
    "denied": "PERMISSION_DENIED: the caller does not have permission",
}
"""Fault -> error of the cloud."""
_RESOURCE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
SERVICE = "gcp:projects/service:Service"
"""Type of the resource that enables an API."""


class Rejected(Exception):
    """The cloud rejected a call without any change."""


@dataclass
class InitFailed(Exception):
    """The resource exists, but its creation failed, or took longer than the client waits."""

    reason: str
    record: SimulatedResource

    def __str__(self) -> str:
        return self.reason


class Effects:
    """Effects of resources outside of the cloud's state, such as running clusters. This base class has no effects."""

    def created(self, record: SimulatedResource) -> None:
        """Apply the effects of a creation or an update."""

    def deleted(self, record: SimulatedResource) -> None:
        """Apply the effects of a deletion, before the resource leaves the state."""


class Cloud:
    """Simulated cloud with its state in a folder."""

    def __init__(self, folder: Path, effects: Effects | None = None, crash: Callable[[], None] | None = None) -> None:
        self.folder = folder
        self._effects = effects or Effects()
        self._crash = crash or _kill_engine

    def create(self, urn: str, type_: str, inputs: Properties, timeout: float = 0) -> SimulatedResource:
        """Create a resource. Raises Rejected or InitFailed."""
        kind = kind_of(type_)
        with edit_state(self.folder) as state:
            state.calls += 1
            injected = next((fault for fault in FAULT_MESSAGES if _take_fault(state, fault, type_, urn)), "")
            failed = {"status": kind.failed_status} if injected == "stockout" and kind.failed_status else {}
            error = "" if failed else FAULT_MESSAGES.get(injected, "")
            error = error or _rejection(state, kind, inputs)
            seconds = kind.seconds * (SLOW_FACTOR if _take_fault(state, "slow", type_, urn) else 1)
            times_out = _take_fault(state, "timeout", type_, urn) or bool(timeout and seconds > timeout)
            crashes = _take_fault(state, "crash", type_, urn)
            if not error:
                record = _record(state, kind, urn, inputs)
                record.outputs |= failed
                record.invisible_reads = int(_take_fault(state, "eventual", type_, urn))
                state.resources[record.key] = record
                operation = Operation(verb="create", type=type_, urn=urn, id=record.id, seconds=seconds)
                state.operations.append(operation)
        if error:
            raise Rejected(f"{inputs.get('name') or urn.rpartition('::')[2]}: {error}")
        if failed:
            raise _init_failed(record)
        try:
            self._effects.created(record)
        except Exception:
            with edit_state(self.folder) as state:
                state.resources.pop(record.key, None)
            raise
        if crashes:
            self._crash()
        if times_out:
            waited = timeout or seconds
            raise InitFailed(
                f"timeout while waiting for {record.id}: not done after {waited:.0f} s of simulated time", record
            )
        return record

    def update(self, urn: str, type_: str, id_: str, inputs: Properties) -> SimulatedResource:
        """Update a resource. Raises Rejected."""
        with edit_state(self.folder) as state:
            state.calls += 1
            record = state.resources.get(key(type_, id_))
            if record is None:
                raise Rejected(f"{id_} does not exist")
            kind = kind_of(record.type)
            denied = _take_fault(state, "denied", record.type, record.urn)
            error = FAULT_MESSAGES["denied"] if denied else _update_error(state, kind, record, inputs)
            failed = {"status": kind.failed_status} if _has_failed(kind, record) else {}
            if not error:
                new = new_outputs(kind.type, record.inputs, inputs)
                counted = {name: record.outputs[name] + (name in new) for name in counted_outputs(kind.type)}
                record.inputs = inputs
                record.refers_to = [each.key for each in _references(state, kind, inputs)]
                record.outputs = {**_outputs(state, kind, inputs, id_), **counted, **failed}
                operation = Operation(verb="update", type=record.type, urn=urn, id=id_, seconds=kind.seconds)
                state.operations.append(operation)
        if error:
            raise Rejected(error)
        if not failed:
            self._effects.created(record)
        return record

    def read(self, type_: str, id_: str) -> SimulatedResource | None:
        """Return the resource, or None if it does not exist."""
        return read_state(self.folder).resources.get(key(type_, id_))

    def delete(self, urn: str, type_: str, id_: str) -> None:
        """Delete a resource and the resources that it owns. Ignore a missing resource. Raises Rejected."""
        with edit_state(self.folder) as state:
            state.calls += 1
            record = state.resources.get(key(type_, id_))
            if record is None:
                return
            denied = _take_fault(state, "denied", record.type, record.urn)
            error = FAULT_MESSAGES["denied"] if denied else _deletion_error(state, record)
            crashes = _take_fault(state, "crash", record.type, urn)
            leaks = _take_fault(state, "leak", record.type, record.urn)
        if leaks:
            return
        if error:
            raise Rejected(error)
        self._effects.deleted(record)
        seconds = kind_of(record.type).delete_seconds
        time.sleep(seconds / DELETION_SPEEDUP)
        with edit_state(self.folder) as state:
            for each in [*_owned(state, record), record]:
                state.resources.pop(each.key, None)
            state.operations.append(Operation(verb="delete", type=record.type, urn=urn, id=id_, seconds=seconds))
        if crashes:
            self._crash()


def check_fault(fault: str) -> None:
    """Raise ValueError for an invalid fault. The error lists the valid faults.

    A fault is `KIND:RESOURCE`, `KIND:RESOURCE:NAME` or `KIND:NUMBER`, and happens once. RESOURCE is part of a
    resource's type. NAME is a resource's name, or the part of it before a `-`, such as a pool's name. NUMBER is the
    position of the call among the calls that create, update or delete a resource.
    """
    kind, _, target = fault.partition(":")
    word, colon, name = target.partition(":")
    known = kind in (CALL_FAULTS if target.isdecimal() else TYPE_FAULTS)
    if fault and not (known and word.isalnum() and (not colon or _RESOURCE_NAME.fullmatch(name))):
        kinds = ", ".join(f"{each}:RESOURCE" for each in TYPE_FAULTS)
        first = TYPE_FAULTS[0]
        raise ValueError(
            f"{option_text('FAULT', fault)}: must be one of {kinds}, denied:NUMBER, crash:NUMBER; write "
            f"{first}:nodepool, or {first}:nodepool:gpus for the pool gpus"
        )


def _take_fault(state: CloudState, kind: str, type_: str, urn: str) -> bool:
    """Return True if the fault of this kind happens to this resource now, and clear the fault."""
    wanted, _, target = state.fault.partition(":")
    if wanted != kind:
        return False
    word, _, name = target.partition(":")
    resource = urn.rpartition("::")[2]
    name_matches = not name or resource == name or resource.startswith(f"{name}-")
    type_matches = word.lower() in type_.rpartition(":")[2].lower()
    hit = state.calls == int(target) if target.isdecimal() else type_matches and name_matches
    if hit:
        state.fault = ""
    return hit


def _kill_engine() -> None:
    os.kill(os.getppid(), signal.SIGKILL)
    os._exit(1)


def _init_failed(record: SimulatedResource) -> InitFailed:
    """Return the error of a creation that failed late. Omit the status, which the provider has not read yet."""
    outputs = {name: value for name, value in record.outputs.items() if name != "status"}
    reason = f"{record.id}: unexpected state {record.outputs['status']}: {FAULT_MESSAGES['stockout']}"
    return InitFailed(reason, replace(record, outputs=outputs))


def _has_failed(kind: Kind, record: SimulatedResource) -> bool:
    return bool(kind.failed_status) and record.outputs.get("status") == kind.failed_status


def _update_error(state: CloudState, kind: Kind, record: SimulatedResource, inputs: Properties) -> str:
    """Return the reason why the cloud rejects the update; empty if it does not.

    Without changes, a provider only reads the resource. EKS rejects every change of a failed node group:
    https://github.com/aws/containers-roadmap/issues/2204
    """
    if _has_failed(kind, record) and without_internal(inputs) != without_internal(record.inputs):
        return f"ResourceInUseException: {record.id} cannot be updated as it is currently not in Active State"
    return _broken_rules(state, kind, inputs)


def _rejection(state: CloudState, kind: Kind, inputs: Properties) -> str:
    """Return the reason why the cloud rejects the creation; empty if it does not."""
    for check in (_missing_api, _missing_references, _broken_rules, _over_quota):
        if error := check(state, kind, inputs):
            return error
    id_ = rendered(kind.id, {**inputs, "number": ""})
    if not kind.adopts_existing and "{number}" not in str(kind.id) and key(kind.type, id_) in state.resources:
        return f"already exists: {id_}"
    return ""


def _missing_api(state: CloudState, kind: Kind, inputs: Properties) -> str:
    service = f"{kind.api}.googleapis.com"
    if kind.api and key(SERVICE, f"{inputs.get('project')}/{service}") not in state.resources:
        return f"SERVICE_DISABLED: the API {service} is not enabled in project {inputs.get('project')}"
    return ""


def _missing_references(state: CloudState, kind: Kind, inputs: Properties) -> str:
    for reference in kind.references:
        for value in references_of(inputs, reference):
            found = state.find(value, reference.type)
            if found is None and reference.required:
                return f"{reference.path}: {value} does not exist"
            if found is not None and found.invisible_reads:
                found.invisible_reads -= 1
                return f"{reference.path}: {value} does not exist (yet)"
    return ""


def _references(
    state: CloudState, kind: Kind, inputs: Properties, *, is_owner: bool = False
) -> list[SimulatedResource]:
    found = [
        state.find(value, reference.type)
        for reference in kind.references
        if reference.is_owner == is_owner
        for value in references_of(inputs, reference)
    ]
    return [each for each in found if each is not None]


def _broken_rules(state: CloudState, kind: Kind, inputs: Properties) -> str:
    found = [each for rule in kind.rules for each in rule.problems(inputs, state)]
    return "; ".join(f"{dotted(each.path)}: {each.message}" for each in found)


def _over_quota(state: CloudState, kind: Kind, inputs: Properties) -> str:
    used = quota_used(state)
    limits = state.settings.get("quotas", {})
    for name, amount in (kind.quota(inputs) if kind.quota else {}).items():
        limit = limits.get(name)
        if limit is not None and used.get(name, 0) + amount > limit:
            return f"QUOTA_EXCEEDED: {name}: {used.get(name, 0)} in use, {amount} requested, limit {limit}"
    return ""


def quota_used(state: CloudState) -> dict[str, int]:
    """Return quota -> its usage by all resources."""
    used: dict[str, int] = {}
    for record in state.resources.values():
        count = kind_of(record.type).quota
        for name, amount in (count(record.inputs) if count else {}).items():
            used[name] = used.get(name, 0) + amount
    return used


def _record(state: CloudState, kind: Kind, urn: str, inputs: Properties) -> SimulatedResource:
    digits = hex_digits(f"{urn} {state.next_number()}")
    id_ = rendered(kind.id, {**inputs, "number": digits, "__settings": state.settings})
    record = SimulatedResource(id=id_, type=kind.type, urn=urn, inputs=inputs, outputs={})
    record.outputs = _outputs(state, kind, inputs, id_)
    record.refers_to = [each.key for each in _references(state, kind, inputs)]
    return record


def _outputs(state: CloudState, kind: Kind, inputs: Properties, id_: str) -> Properties:
    plain = without_internal(inputs)
    known = {**plain, "id": id_, "number": hex_digits(id_), "__settings": state.settings}
    computed = {name: rendered(template, known) for name, template in kind.outputs.items()}
    merged: Properties = _merged(plain, computed)
    return merged


def _merged(first: Any, second: Any) -> Any:
    if isinstance(first, dict) and isinstance(second, dict):
        return {name: _merged(first.get(name), second.get(name)) for name in {**first, **second}}
    return first if second is None else second


def _owned(state: CloudState, owner: SimulatedResource) -> list[SimulatedResource]:
    """Return the resources that the cloud deletes together with their owner."""
    # Compare keys: `owner` may be an object from an earlier read of the state.
    return [
        record
        for record in state.resources.values()
        if any(each.key == owner.key for each in _references(state, kind_of(record.type), record.inputs, is_owner=True))
    ]


def _deletion_error(state: CloudState, record: SimulatedResource) -> str:
    if record.inputs.get("deletionProtection"):
        return f"{record.id}: deletion protection is on"
    gone = {each.key for each in _owned(state, record)}
    users = [each.id for each in state.resources.values() if record.key in each.refers_to and each.key not in gone]
    if users:
        return f"{record.id} is in use by {', '.join(sorted(users))}"
    return ""
