"""Tables of machine types, GPUs and TPU slices: consistent rows, documented values, and errors for unknown hardware."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.gcp.pools import FABRICS, machine_fabric
from infra.hardware.ec2 import AWS_ZONES, EC2_FAMILIES, EC2_MACHINES, Ec2Family, Ec2Machine, ec2_machine
from infra.hardware.gce import GCE_FAMILIES, GCE_MACHINES, GceFamily, gce_machine, gpus_on
from infra.hardware.gpus import GCP_ZONES, GPUS, TPU_FLEX_START_ZONES, TPU_ZONES, Gpu
from infra.hardware.machines import HardwareError
from infra.hardware.tpus import GENERATIONS, TpuGeneration, is_tpu, tpu_slice
from tests.unit.stack_settings import code_ids

ATTACHED_GPUS = {gpu.name for gpu in GPUS.values() if gpu.attachment}
GCE_GPUS = {machine.gpu for machine in GCE_MACHINES.values() if machine.gpu} | ATTACHED_GPUS
GPUS_WITHOUT_LISTED_ZONES = {"nvidia-rtx-pro-6000"}
"""GPU models of GCE without a published list of zones. Validation does not check their zones."""


def test_every_gpu_is_built_into_or_attached_to_a_machine() -> None:
    built_in = {machine.gpu for machine in [*GCE_MACHINES.values(), *EC2_MACHINES.values()] if machine.gpu}
    assert built_in | ATTACHED_GPUS == set(GPUS)


@pytest.mark.parametrize("row", [GceFamily, Gpu, TpuGeneration, Ec2Family, Ec2Machine])
def test_hardware_table_row_has_no_defaults(row: type) -> None:
    own = [each for each in fields(row) if each.name in row.__annotations__]
    assert own
    assert all(each.default is MISSING and each.default_factory is MISSING for each in own)


@pytest.mark.parametrize("name", GPUS)
def test_gpu_of_gce_has_quota_and_zones(name: str) -> None:
    gpu = GPUS[name]
    assert (gpu.gce_quota is not None) == (name in GCE_GPUS), f"set gce_quota of {name} if GCE has this GPU"
    assert bool(gpu.gce_zones) == (name in GCE_GPUS - GPUS_WITHOUT_LISTED_ZONES), (
        f"set gce_zones of {name}, or add it to GPUS_WITHOUT_LISTED_ZONES"
    )
    assert gpu.gce_zones <= GCP_ZONES


@pytest.mark.parametrize("name", GCE_FAMILIES)
def test_gce_family_is_consistent(name: str) -> None:
    family = GCE_FAMILIES[name]
    assert family.machines
    assert all(machine.family == name for machine in family.machines)
    assert all(source.startswith("https://") for source in family.sources)
    assert family.sources
    has_accelerators = any(machine.accelerators for machine in family.machines)
    assert (family.cpu_quota is None) == has_accelerators
    assert has_accelerators or not family.flex_start
    assert family.fabric is None or family.fabric in FABRICS
    assert family.flex_start or not family.compact_flex_start


@pytest.mark.parametrize("name", [name for name, family in GCE_FAMILIES.items() if family.fabric])
def test_gce_family_fabric_connects_only_the_type_with_most_gpus(name: str) -> None:
    machines = GCE_FAMILIES[name].machines
    connected = [machine.gpus for machine in machines if machine_fabric(machine)]
    assert connected == [max(machine.gpus for machine in machines)]


@pytest.mark.parametrize("name", EC2_FAMILIES)
def test_ec2_family_is_consistent(name: str) -> None:
    family = EC2_FAMILIES[name]
    assert all(machine.family == name for machine in family.machines)
    measured = [machine.missing_mib is not None for machine in family.machines]
    assert measured
    assert all(measured) or family.missing_memory is not None, "set missing_memory of the family"
    assert not all(measured) or family.missing_memory is None
    assert family.regions is None or family.regions <= set(AWS_ZONES)


@pytest.mark.parametrize("family", ["a2-highgpu", "a2-ultragpu", "a3-highgpu"])
def test_gce_family_machines_are_multiples_of_smallest(family: str) -> None:
    small = gce_machine(f"{family}-1g")
    for gpus in (2, 4, 8):
        large = gce_machine(f"{family}-{gpus}g")
        assert (large.gpus, large.vcpus, large.memory_gib) == (gpus, gpus * small.vcpus, gpus * small.memory_gib)


def test_ec2_type_with_more_gpus_has_at_least_as_many_vcpus_and_adapters() -> None:
    for machine in EC2_MACHINES.values():
        for other in EC2_MACHINES.values():
            if other.family == machine.family and other.gpus > machine.gpus:
                # Types with one GPU also come with many vCPUs.
                assert other.vcpus >= machine.vcpus or machine.gpus == 1
                assert other.efa_interfaces >= machine.efa_interfaces


@pytest.mark.parametrize(
    ("name", "gpus", "adapters"),
    [
        ("p4d.24xlarge", 8, 4),
        ("p5.48xlarge", 8, 32),
        ("p5en.48xlarge", 8, 16),
        ("p6-b200.48xlarge", 8, 8),
        ("p6-b300.48xlarge", 8, 16),
    ],
)
def test_ec2_machine_has_documented_adapters_and_capacity_blocks(name: str, gpus: int, adapters: int) -> None:
    machine = ec2_machine(name)
    assert (machine.gpus, machine.efa_interfaces) == (gpus, adapters)
    assert EC2_FAMILIES[machine.family].capacity_blocks


@pytest.mark.parametrize(
    ("machine", "gpu", "count", "expected"),
    [
        ("n1-standard-4", "nvidia-tesla-t4", 2, ("nvidia-tesla-t4", 2)),
        ("n1-standard-8", "nvidia-tesla-v100", None, ("nvidia-tesla-v100", 1)),
        ("n1-standard-96", "nvidia-tesla-v100", 8, ("nvidia-tesla-v100", 8)),
        ("a3-highgpu-8g", None, None, ("nvidia-h100-80gb", 8)),
        ("a3-highgpu-8g", "nvidia-h100-80gb", 8, ("nvidia-h100-80gb", 8)),
        ("n2-standard-4", None, None, (None, 0)),
        ("ct4p-hightpu-4t", None, None, (None, 0)),
    ],
)
def test_gpus_on_machine_returns_model_and_count(
    machine: str, gpu: str | None, count: int | None, expected: tuple[str | None, int]
) -> None:
    assert gpus_on(gce_machine(machine), gpu, count) == expected


HARDWARE_ERRORS: list[tuple[Callable[[], object], str, str]] = [
    (lambda: gce_machine("n1-standard-5"), "machine_unknown", "machine_type"),
    (lambda: gpus_on(gce_machine("a3-highgpu-8g"), "nvidia-l4", None), "gpu_of_machine", "machine_type"),
    (lambda: gpus_on(gce_machine("a3-highgpu-8g"), None, 4), "gpu_count_of_machine", "accelerators_per_node"),
    (lambda: gpus_on(gce_machine("n1-standard-4"), "nvidia-t4", 1), "accelerator_unknown", "accelerator"),
    (lambda: gpus_on(gce_machine("n1-standard-4"), "nvidia-l4", 1), "gpu_of_other_machines", "machine_type"),
    (lambda: gpus_on(gce_machine("n2-standard-4"), "nvidia-tesla-t4", 1), "machine_without_gpus", "machine_type"),
    (lambda: gpus_on(gce_machine("n1-standard-4"), "nvidia-tesla-t4", 3), "gpu_count", "accelerators_per_node"),
    (lambda: gpus_on(gce_machine("n1-standard-16"), "nvidia-tesla-v100", 1), "machine_too_large", "machine_type"),
    (lambda: tpu_slice("v9-8"), "tpu_unknown", "accelerator"),
    (lambda: tpu_slice("nvidia-l4"), "tpu_unknown", "accelerator"),
    (lambda: tpu_slice("v4-33"), "tpu_partial_chip", "accelerator"),
    (lambda: tpu_slice("v4"), "topology_missing", "accelerator"),
    (lambda: tpu_slice("v4-24"), "tpu_slice_impossible", "accelerator"),
    (lambda: tpu_slice("v4", "2x2"), "topology_impossible", "topology"),
    (lambda: tpu_slice("v4", "2x2x3"), "topology_impossible", "topology"),
    (lambda: tpu_slice("v4", "16x16x20"), "topology_impossible", "topology"),
    (lambda: tpu_slice("v5p", "8x4x4"), "topology_impossible", "topology"),
    (lambda: tpu_slice("v5p", "1x1x1"), "topology_impossible", "topology"),
    (lambda: tpu_slice("v5e", "3x4"), "topology_impossible", "topology"),
    (lambda: tpu_slice("v5e", "4by4"), "topology_malformed", "topology"),
    (lambda: tpu_slice("v4-32", "2x2x2"), "topology_of_other_chips", "topology"),
]
"""Call for hardware that does not exist, the code of its error, and the settings key to change."""


@pytest.mark.parametrize(("call", "code", "key"), HARDWARE_ERRORS, ids=code_ids(HARDWARE_ERRORS))
def test_hardware_error_has_code_and_key(call: Callable[[], object], code: str, key: str) -> None:
    with pytest.raises(HardwareError) as caught:
        call()
    assert (caught.value.code, caught.value.key) == (code, key)


def test_unknown_machine_type_suggests_similar_types() -> None:
    with pytest.raises(ValueError, match="n1-standard-8"):
        gce_machine("n1-standard-9")
    with pytest.raises(ValueError, match=r"p5\.48xlarge"):
        ec2_machine("p5.48large")
    with pytest.raises(ValueError, match="families: a2-highgpu"):
        gce_machine("zzz")


DOCUMENTED_SLICES = [
    # Accelerator type, topology, machine type, hosts, chips per host:
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


@pytest.mark.parametrize(("accelerator", "topology", "machine", "hosts", "chips_per_host"), DOCUMENTED_SLICES)
def test_tpu_slice_equals_documentation(
    accelerator: str, topology: str, machine: str, hosts: int, chips_per_host: int
) -> None:
    found = tpu_slice(accelerator)
    assert (found.topology_label, found.machine_type) == (topology, machine)
    assert (found.hosts, found.chips_per_host, found.chips) == (hosts, chips_per_host, hosts * chips_per_host)
    assert found.accelerator_type == accelerator
    assert tpu_slice(found.generation, topology) == tpu_slice(accelerator, topology) == found


def test_tpu_slice_v5e_has_the_accelerator_label_of_gke() -> None:
    assert tpu_slice("v5e", "4x4").gke_accelerator == "tpu-v5-lite-podslice"


AXES = st.sampled_from([1, 2, 4, 8, 12, 16]) | st.integers(min_value=1, max_value=20)
"""Lengths of a topology's axes. About half are typical lengths, because random lengths rarely form a valid topology."""


@given(st.sampled_from(sorted(GENERATIONS)), st.lists(AXES, min_size=2, max_size=3))
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


def test_is_tpu_accepts_generations_and_names_with_the_prefix_of_a_tpu_type() -> None:
    assert all(map(is_tpu, ["v4", "v4-31", "v5litepod-x", "v7x", "tpu7x-8"]))
    assert not any(map(is_tpu, ["nvidia-l4", "v45", "tpu", "v5litepod"]))


def test_tpu_zones_have_every_generation_and_include_flex_start_zones() -> None:
    assert set(TPU_ZONES) == set(GENERATIONS)
    assert all(zones <= TPU_ZONES[generation] for generation, zones in TPU_FLEX_START_ZONES.items())


def test_gpu_memory_equals_the_size_in_its_name() -> None:
    for name, gpu in GPUS.items():
        size = name.rpartition("-")[2]
        assert not size.endswith("gb") or gpu.memory_gib == int(size.removesuffix("gb"))
