"""Check of the simulated providers rejects damaged inputs of the program, and reports the input and its source line.

The test draws 100 damages, or 2,000 with TRAINYARD_TESTS=soak. TRAINYARD_SEED repeats the draws of a run.
"""

from __future__ import annotations

import functools
import os
import random
from collections import Counter
from pathlib import Path
from unittest.mock import Mock

from pulumi.runtime.proto import provider_pb2

from simulation.cloud import checking
from simulation.cloud.__main__ import SimulatedProvider
from simulation.cloud.fact_table import FactTable, fact_table
from simulation.cloud.lifecycle import Cloud
from simulation.cloud.model import Properties
from simulation.cloud.values import to_wire
from tests.conftest import SOAK
from tests.rehearsal.damaged_inputs import Damage, damages
from tests.rehearsal.test_facts import PLACES, records

COUNT = 2000 if SOAK else 100
KINDS = (
    "unknown input",
    "wrong type",
    "required input removed",
    "word outside the list",
    "number out of bounds",
    "length out of bounds",
    "number of elements",
    "pattern broken",
    "provider's check broken",
    "conflict",
    "companion missing",
    "no alternative set",
    "two alternatives set",
)
Case = tuple[str, str, Properties, Damage]
"""Type, URN, valid inputs and a damage to them."""


@functools.cache
def cases() -> dict[str, list[Case]]:
    """Return kind of damage -> every such damage to the resources that the program declares, each once."""
    found: dict[str, dict[tuple[str, str, str], Case]] = {kind: {} for kind in KINDS}
    for record in records().values():
        urn = f"urn:pulumi:test::trainyard::{record.type}::{record.name}"
        inputs = checking.with_defaults(record.type, urn, b"", {}, record.inputs, PLACES)
        for damage in damages(table_of(record.type), inputs):
            case = (record.type, urn, inputs, damage)
            found[damage.kind].setdefault((record.type, damage.where, repr(damage.edits)), case)
    return {kind: list(each.values()) for kind, each in found.items()}


def table_of(type_: str) -> FactTable:
    """Return the fact table of a type, which must have one."""
    table = fact_table(type_)
    assert table is not None
    return table


def failures(type_: str, urn: str, inputs: Properties, folder: Path) -> dict[str, str]:
    """Return input -> its problems, from Check of the simulated provider."""
    provider = SimulatedProvider(type_.partition(":")[0], Cloud(folder))
    request = provider_pb2.CheckRequest(urn=urn, type=type_, news=to_wire(inputs, keep_secrets=False))
    found: dict[str, str] = {}
    for each in provider.Check(request, Mock()).failures:
        found[each.property] = found.get(each.property, "") + each.reason
    return found


def test_check_rejects_damaged_inputs(tmp_path: Path) -> None:
    seed = int(os.environ.get("TRAINYARD_SEED") or random.randrange(2**32))
    draws = random.Random(seed)
    checked, accepted = Counter[str](), list[str]()
    assert [kind for kind in KINDS if not cases()[kind]] == []
    for _ in range(COUNT):
        kind = draws.choice(KINDS)
        type_, urn, inputs, damage = draws.choice(cases()[kind])
        checked[kind] += 1
        problem = failures(type_, urn, damage.apply(inputs), tmp_path).get(damage.where, "")
        if table_of(type_).source(damage.line) not in problem:
            accepted.append(f"{kind}: {type_} {damage.where} by {damage.edits}: {problem or 'not rejected'}")
    print(f"seed {seed}: {dict(checked)}")
    assert accepted == [], f"{len(accepted)} of {COUNT}; TRAINYARD_SEED={seed} repeats it"
