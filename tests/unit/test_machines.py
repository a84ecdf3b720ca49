"""Machine types of both clouds: relations between the rows, and which GPUs go on which machine."""

from __future__ import annotations

from dataclasses import MISSING, fields

import pytest

from infra.gcp.fabrics import FABRICS
from infra.hardware.accelerators import GCP_ZONES
from infra.hardware.aws_regions import ZONES
from infra.hardware.ec2 import EC2_FAMILIES, EC2_MACHINES, Ec2Family, Ec2Machine, ec2_machine
from infra.hardware.gce import GCE_FAMILIES, GCE_MACHINES, GceFamily, gce_machine, gpus_on
from infra.hardware.gpus import GPUS, Gpu
from infra.hardware.tpus import TpuGeneration

GIBIBYTE = 2**30


ATTACHED = {gpu.name for gpu in GPUS.values() if gpu.attachment}
ON_GCE = {machine.gpu for machine in GCE_MACHINES.values() if machine.gpu} | ATTACHED
UNLISTED_ZONES = {"nvidia-rtx-pro-6000"}
"""GPU models of GCE without a published list of zones. Their zones are not checked."""


def test_every_gpu_is_on_some_machine() -> None:
    carried = {machine.gpu for machine in [*GCE_MACHINES.values(), *EC2_MACHINES.values()] if machine.gpu}
    assert carried | ATTACHED == set(GPUS)


@pytest.mark.parametrize("row", [GceFamily, Gpu, TpuGeneration, Ec2Family])
def test_row_has_no_defaults(row: type) -> None:
    assert all(each.default is MISSING and each.default_factory is MISSING for each in fields(row))


def test_ec2_machine_adds_no_defaults() -> None:
    own = Ec2Machine.__annotations__
    assert all(each.default is MISSING for each in fields(Ec2Machine) if each.name in own)


@pytest.mark.parametrize("name", GPUS)
def test_gpu_of_gce_has_quota_and_zones(name: str) -> None:
    gpu = GPUS[name]
    assert (gpu.gce_quota is not None) == (name in ON_GCE)
    assert bool(gpu.gce_zones) == (name in ON_GCE - UNLISTED_ZONES)
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


@pytest.mark.parametrize("name", EC2_FAMILIES)
def test_ec2_family_is_consistent(name: str) -> None:
    family = EC2_FAMILIES[name]
    assert all(machine.family == name for machine in family.machines)
    measured = [machine.missing_mib is not None for machine in family.machines]
    assert measured
    assert all(measured) or family.missing_memory is not None, "the memory of a node is not known"
    assert not all(measured) or family.missing_memory is None
    assert family.regions is None or family.regions <= set(ZONES)
    assert all(machine.capacity_block == family.capacity_blocks for machine in family.machines)


@pytest.mark.parametrize("family", ["a2-highgpu", "a2-ultragpu", "a3-highgpu"])
def test_larger_machines_are_multiples_of_the_smallest(family: str) -> None:
    small = gce_machine(f"{family}-1g")
    for gpus in (2, 4, 8):
        large = gce_machine(f"{family}-{gpus}g")
        assert (large.gpus, large.vcpus, large.memory_gib) == (gpus, gpus * small.vcpus, gpus * small.memory_gib)


def test_no_larger_ec2_instance_has_less() -> None:
    for machine in EC2_MACHINES.values():
        for other in EC2_MACHINES.values():
            if other.family == machine.family and other.gpus > machine.gpus:
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
def test_fabric_adapters(name: str, gpus: int, adapters: int) -> None:
    machine = ec2_machine(name)
    assert (machine.gpus, machine.efa_interfaces, machine.capacity_block) == (gpus, adapters, True)


@pytest.mark.parametrize(
    ("machine", "gpu", "count", "found"),
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
def test_gpus_that_a_node_has(machine: str, gpu: str | None, count: int | None, found: tuple[str | None, int]) -> None:
    assert gpus_on(gce_machine(machine), gpu, count) == found


@pytest.mark.parametrize(
    ("machine", "gpu", "count", "part"),
    [
        ("n1-standard-4", "nvidia-tesla-t4", 3, "write one of 1, 2, 4"),
        ("n1-standard-4", "nvidia-tesla-t4", 8, "write one of 1, 2, 4"),
        ("n1-standard-4", "nvidia-tesla-v100", 3, "write one of 1, 2, 4, 8"),
        ("n1-standard-16", "nvidia-tesla-v100", 1, "at most 12 vCPUs and 78 GiB"),
        ("n1-standard-4", "nvidia-h100-80gb", 8, "write one of a3-highgpu-1g"),
        ("n2-standard-4", "nvidia-tesla-t4", 1, "requires the N1 family"),
        ("a3-highgpu-8g", "nvidia-l4", 8, "has nvidia-h100-80gb; write nvidia-h100-80gb"),
        ("a3-highgpu-8g", None, 4, "has exactly 8 GPUs"),
    ],
)
def test_gpus_that_do_not_go_on_a_machine(machine: str, gpu: str | None, count: int | None, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        gpus_on(gce_machine(machine), gpu, count)


def test_unknown_machines_name_near_ones() -> None:
    with pytest.raises(ValueError, match="n1-standard-8"):
        gce_machine("n1-standard-9")
    with pytest.raises(ValueError, match=r"p5\.48xlarge"):
        ec2_machine("p5.48large")
    with pytest.raises(ValueError, match="families: a2-highgpu"):
        gce_machine("zzz")
