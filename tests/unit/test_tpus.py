"""TPU slices: meaning of types and topologies, and rejected ones."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.hardware.accelerators import TPU_FLEX_START_ZONES, TPU_ZONES
from infra.hardware.gce import GCE_MACHINES
from infra.hardware.tpus import GENERATIONS, is_tpu, tpu_slice

DOCUMENTED = [
    # accelerator type, topology, machine type, hosts, chips per host:
    # https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus
    ("v4-8", "2x2x1", "ct4p-hightpu-4t", 1, 4),
    ("v4-16", "2x2x2", "ct4p-hightpu-4t", 2, 4),
    ("v4-32", "2x2x4", "ct4p-hightpu-4t", 4, 4),
    ("v4-64", "2x4x4", "ct4p-hightpu-4t", 8, 4),
    ("v4-128", "4x4x4", "ct4p-hightpu-4t", 16, 4),
    ("v4-256", "4x4x8", "ct4p-hightpu-4t", 32, 4),
    ("v4-512", "4x8x8", "ct4p-hightpu-4t", 64, 4),
    ("v4-1024", "8x8x8", "ct4p-hightpu-4t", 128, 4),
    ("v4-4096", "8x16x16", "ct4p-hightpu-4t", 512, 4),
    ("v4-8192", "16x16x16", "ct4p-hightpu-4t", 1024, 4),
    ("v5litepod-1", "1x1", "ct5lp-hightpu-1t", 1, 1),
    ("v5litepod-4", "2x2", "ct5lp-hightpu-4t", 1, 4),
    ("v5litepod-8", "2x4", "ct5lp-hightpu-8t", 1, 8),
    ("v5litepod-16", "4x4", "ct5lp-hightpu-4t", 4, 4),
    ("v5litepod-256", "16x16", "ct5lp-hightpu-4t", 64, 4),
    ("v5p-8", "2x2x1", "ct5p-hightpu-4t", 1, 4),
    ("v5p-32", "2x2x4", "ct5p-hightpu-4t", 4, 4),
    ("v6e-8", "2x4", "ct6e-standard-8t", 1, 8),
    ("v6e-16", "4x4", "ct6e-standard-4t", 4, 4),
    ("v6e-32", "4x8", "ct6e-standard-4t", 8, 4),
    ("tpu7x-8", "2x2x1", "tpu7x-standard-4t", 1, 4),
    ("tpu7x-128", "4x4x4", "tpu7x-standard-4t", 16, 4),
]


@pytest.mark.parametrize(("accelerator", "topology", "machine", "hosts", "chips_per_host"), DOCUMENTED)
def test_tpu_slice_equals_documentation(
    accelerator: str, topology: str, machine: str, hosts: int, chips_per_host: int
) -> None:
    found = tpu_slice(accelerator)
    assert (found.topology_label, found.machine_type) == (topology, machine)
    assert (found.hosts, found.chips_per_host, found.chips) == (hosts, chips_per_host, hosts * chips_per_host)
    assert found.accelerator_type == accelerator
    assert tpu_slice(found.generation, topology) == tpu_slice(accelerator, topology) == found


def test_tpu_slice_v5e_has_label_of_gke() -> None:
    assert tpu_slice("v5e", "4x4").gke_accelerator == "tpu-v5-lite-podslice"


@given(st.sampled_from(sorted(GENERATIONS)), st.lists(st.integers(min_value=1, max_value=20), min_size=2, max_size=3))
def test_tpu_slice_accepted_topology_is_consistent(generation: str, axes: list[int]) -> None:
    topology = "x".join(map(str, axes))
    try:
        found = tpu_slice(generation, topology)
    except ValueError:
        return
    assert found.topology == tuple(axes)
    assert found.chips == math.prod(axes) == found.hosts * found.chips_per_host
    assert GCE_MACHINES[found.machine_type].tpu_chips == found.chips_per_host
    again = tpu_slice(found.accelerator_type)
    assert (again.chips, again.hosts) == (found.chips, found.hosts)
    assert max(again.topology) <= max(found.topology)


@pytest.mark.parametrize(
    ("accelerator", "topology", "part"),
    [
        ("v4", None, "add a topology; write for example `topology: 2x2x4`"),
        ("v4-31", None, "not a whole number of chips"),
        ("v4-24", None, "has 12 chips, and v4 has no such slice; write one of 2x2x1, 2x2x2, 2x2x4, 2x4x4"),
        ("v4-32", "2x2x2", "2x2x2 has 8 chips and v4-32 has 16"),
        ("v4", "2x2", "v4 has no slice 2x2"),
        ("v4", "2x2x3", "v4 has no slice 2x2x3"),
        ("v4", "16x16x20", "at most 4096 chips"),
        ("v5p", "8x4x4", "ascending"),
        ("v5e", "3x4", "write one of 1x1, 2x2, 2x4, 4x4"),
        ("v5e", "2x2x4", "v5e has no slice 2x2x4"),
        ("v5litepod-12", None, "has 12 chips"),
        ("v5p", "1x1x1", "v5p has no slice 1x1x1"),
        ("v5e", "4by4", "write for example 4x4 or 2x2x4"),
        ("v9-8", None, "is not a TPU; write one of v4 (v4-N), v5e (v5litepod-N)"),
        ("nvidia-l4", None, "is not a TPU"),
    ],
)
def test_tpu_slice_invalid_type_or_topology_raises(accelerator: str, topology: str | None, part: str) -> None:
    with pytest.raises(ValueError, match=re.escape(part)):
        tpu_slice(accelerator, topology)


def test_is_tpu_recognizes_tpu_types() -> None:
    assert all(map(is_tpu, ["v4", "v4-31", "v5litepod-x", "v7x", "tpu7x-8"]))
    assert not any(map(is_tpu, ["nvidia-l4", "v45", "tpu", "v5litepod"]))


def test_tpu_zones_cover_every_generation() -> None:
    assert set(TPU_ZONES) == set(GENERATIONS)
    assert all(zones <= TPU_ZONES[generation] for generation, zones in TPU_FLEX_START_ZONES.items())
