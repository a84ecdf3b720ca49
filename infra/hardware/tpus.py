"""TPU generations and slices: chips, hosts, machine type and labels of an accelerator type or topology."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product

from infra.hardware.machines import BootDisks, HardwareError, zone_set

RESOURCE = "google.com/tpu"
"""Kubernetes resource of TPU chips: https://cloud.google.com/kubernetes-engine/docs/how-to/tpus"""

_SMALL_2D = ((1, 1), (2, 2), (2, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16))
_SMALL_3D = ((2, 2, 1), (2, 2, 2), (2, 2, 4), (2, 4, 4))
_CUBE = 4
"""Edge length, in chips, of the cubes that form larger slices."""
_TYPE = re.compile(r"(?P<prefix>[a-z0-9]+)-(?P<count>[1-9]\d*)")
_TOPOLOGY = re.compile(r"[1-9]\d*(x[1-9]\d*){1,2}")


@dataclass(frozen=True, kw_only=True)
class TpuGeneration:
    """Properties of all slices of a generation.

    Source: https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus (read 2026-11)
    """

    name: str
    """Name, such as `v5e`."""
    type_prefix: str
    """Prefix of the generation's accelerator types, such as `v5litepod`."""
    cores_in_type: int
    """TensorCores of a chip if accelerator types count TensorCores, or 1 if they count chips."""
    gke_accelerator: str
    """Value of the node label `cloud.google.com/gke-tpu-accelerator`."""
    hosts: Mapping[int, tuple[str, int, float]]
    """Machine type, vCPUs and GiB of a host, by its number of chips."""
    hbm_gib: int
    """Memory of a chip, in GiB.

    https://docs.cloud.google.com/tpu/docs/v4, https://docs.cloud.google.com/tpu/docs/v5e (16 GB) and
    https://docs.cloud.google.com/tpu/docs/tpu7x (v5p, v6e and tpu7x)
    """
    devices_per_chip: int
    """Devices that a program sees for a chip: https://docs.cloud.google.com/tpu/docs/tpu7x"""
    dimensions: int
    """Number of axes of a topology, 2 or 3."""
    max_cubes: int
    """Maximum number of cubes of 4x4x4 chips in a slice with three axes."""
    sorted_axes: bool
    """True if three axes must be in ascending order."""
    disks: BootDisks
    """Boot disks that hosts support: https://cloud.google.com/compute/docs/disks/hyperdisks#machine-type-support"""
    quota: str
    """Quota of chips. The spot quota has the prefix PREEMPTIBLE_.

    https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus#ensure-quota
    """
    flex_start: bool
    """True if the generation supports flex-start: https://cloud.google.com/kubernetes-engine/docs/concepts/dws"""
    zones: frozenset[str]
    """Zones, including single-tenant zones: https://cloud.google.com/tpu/docs/regions-zones"""
    flex_start_zones: frozenset[str]
    """Zones with flex-start, from the source of `flex_start`. Empty if the source lists none."""
    workload_policy: bool
    """True if a workload policy sets the topology of a slice. Otherwise the node pool's placement policy sets it.

    https://cloud.google.com/kubernetes-engine/docs/how-to/tpus, https://github.com/AI-Hypercomputer/xpk/pull/825
    """

    @property
    def machine_types(self) -> Mapping[int, str]:
        """Machine type of a host, by its number of chips."""
        return {chips: name for chips, (name, _, _) in self.hosts.items()}


@dataclass(frozen=True, kw_only=True)
class TpuSlice:
    """Connected TPU chips and their hosts."""

    generation: str
    """Name of the generation, such as `v4`."""
    topology: tuple[int, ...]
    """Chips along each axis."""
    chips: int
    """Total number of chips."""
    hosts: int
    """Number of hosts, each of which is a node and runs one pod."""
    chips_per_host: int
    """Chips of each host, the `google.com/tpu` request of its pod."""
    machine_type: str
    """GCE machine type of each host."""
    gke_accelerator: str
    """Value of the node label `cloud.google.com/gke-tpu-accelerator`."""

    @classmethod
    def of(cls, row: TpuGeneration, topology: tuple[int, ...]) -> TpuSlice:
        """Return the slice of a generation with a possible topology."""
        chips = math.prod(topology)
        # A slice that fits on one host has one host. Larger slices have hosts of four chips.
        chips_per_host = chips if chips in row.hosts else 4
        return cls(
            generation=row.name,
            topology=topology,
            chips=chips,
            hosts=chips // chips_per_host,
            chips_per_host=chips_per_host,
            machine_type=row.machine_types[chips_per_host],
            gke_accelerator=row.gke_accelerator,
        )

    @property
    def topology_label(self) -> str:
        """Value of the node label `cloud.google.com/gke-tpu-topology`, such as `2x2x4`."""
        return "x".join(map(str, self.topology))

    @property
    def node_labels(self) -> dict[str, str]:
        """Labels that GKE puts on the nodes of the slice."""
        return {
            "cloud.google.com/gke-tpu-accelerator": self.gke_accelerator,
            "cloud.google.com/gke-tpu-topology": self.topology_label,
        }

    @property
    def accelerator_type(self) -> str:
        """Accelerator type in Cloud TPU's notation, such as `v4-32`."""
        row = GENERATIONS[self.generation]
        return f"{row.type_prefix}-{self.chips * row.cores_in_type}"


def _quota(family: str) -> str:
    return f"TPUS_PER_TPU_FAMILY (tpu_family: {family})"


GENERATIONS: Mapping[str, TpuGeneration] = {
    row.name: row
    for row in (
        TpuGeneration(
            name="v4",
            type_prefix="v4",
            cores_in_type=2,
            gke_accelerator="tpu-v4-podslice",
            hosts={4: ("ct4p-hightpu-4t", 240, 407)},
            hbm_gib=32,
            devices_per_chip=1,
            dimensions=3,
            max_cubes=64,
            sorted_axes=False,
            disks="no-hyperdisk",
            quota=_quota("CT4P"),
            flex_start=False,
            zones=zone_set("us-central2 b"),
            flex_start_zones=frozenset(),
            workload_policy=False,
        ),
        TpuGeneration(
            name="v5e",
            type_prefix="v5litepod",
            cores_in_type=1,
            gke_accelerator="tpu-v5-lite-podslice",
            hosts={
                1: ("ct5lp-hightpu-1t", 24, 48),
                4: ("ct5lp-hightpu-4t", 112, 192),
                8: ("ct5lp-hightpu-8t", 224, 384),
            },
            hbm_gib=16,
            devices_per_chip=1,
            dimensions=2,
            max_cubes=0,
            sorted_axes=True,
            disks="no-hyperdisk",
            quota=_quota("CT5LP"),
            flex_start=True,
            zones=zone_set("europe-west4 b, us-central1 a, us-east5 a b c, us-south1 a, us-west1 c, us-west4 a"),
            flex_start_zones=zone_set("us-west4 a"),
            workload_policy=False,
        ),
        TpuGeneration(
            name="v5p",
            type_prefix="v5p",
            cores_in_type=2,
            gke_accelerator="tpu-v5p-slice",
            hosts={4: ("ct5p-hightpu-4t", 208, 448)},
            hbm_gib=95,
            devices_per_chip=1,
            dimensions=3,
            max_cubes=96,
            sorted_axes=True,
            disks="any",
            quota=_quota("CT5P"),
            flex_start=True,
            zones=zone_set("europe-west4 b, us-central1 a, us-east5 a b c, us-south1 a"),
            flex_start_zones=zone_set("us-east5 a"),
            workload_policy=False,
        ),
        TpuGeneration(
            name="v6e",
            type_prefix="v6e",
            cores_in_type=1,
            gke_accelerator="tpu-v6e-slice",
            hosts={
                1: ("ct6e-standard-1t", 44, 176),
                4: ("ct6e-standard-4t", 180, 720),
                8: ("ct6e-standard-8t", 180, 1440),
            },
            hbm_gib=32,
            devices_per_chip=1,
            dimensions=2,
            max_cubes=0,
            sorted_axes=True,
            disks="hyperdisk",
            quota=_quota("CT6E"),
            flex_start=True,
            zones=zone_set(
                "asia-northeast1 b, asia-south1 b c, asia-southeast1 b, europe-west4 a, southamerica-west1 a, "
                "us-central1 b, us-east1 d, us-east4 a b, us-east5 a b c, us-south1 a ai1b, us-west1 c"
            ),
            flex_start_zones=zone_set("asia-northeast1 b, us-east5 a b"),
            workload_policy=False,
        ),
        TpuGeneration(
            name="v7x",
            type_prefix="tpu7x",
            cores_in_type=2,
            gke_accelerator="tpu7x",
            hosts={1: ("tpu7x-standard-1t", 56, 240), 4: ("tpu7x-standard-4t", 224, 960)},
            hbm_gib=192,
            devices_per_chip=2,
            dimensions=3,
            max_cubes=144,
            sorted_axes=True,
            disks="hyperdisk",
            quota=_quota("TPU7X"),
            flex_start=True,
            zones=zone_set("us-central1 ai1a c"),
            flex_start_zones=frozenset(),
            workload_policy=True,
        ),
    )
}
"""TPU generations by name."""


@cache
def tpu_slice(accelerator: str, topology: str | None = None) -> TpuSlice:
    """Return the slice of an accelerator type (`v4-32`), or of a generation (`v4`) with a topology (`2x2x4`).

    An accelerator type alone gets its most compact topology. The number in `v4-32`, `v5p-8` and `tpu7x-8` counts
    TensorCores, two per chip. In `v5litepod-16` and `v6e-16` it counts chips.

    Raises HardwareError with the key to change and the allowed values. Rules: https://cloud.google.com/tpu/docs/v4,
    https://cloud.google.com/tpu/docs/v5p, https://cloud.google.com/tpu/docs/v5e, https://cloud.google.com/tpu/docs/v6e,
    https://cloud.google.com/tpu/docs/tpu7x
    """
    row, chips = _parse_accelerator(accelerator)
    if topology is None:
        if chips is None:
            message = (
                f"{accelerator} is a generation without a number of chips; add a topology, such as {_example(row)}"
            )
            raise HardwareError("topology_missing", "accelerator", message)
        return TpuSlice.of(row, _most_compact(row, chips, accelerator))
    axes = parse_topology(topology)
    if not _is_possible(row, axes):
        message = f"{row.name} has no slice {topology}; write {_allowed(row)}"
        raise HardwareError("topology_impossible", "topology", message)
    if chips not in (None, math.prod(axes)):
        remedy = f"remove `topology`, or write `accelerator: {row.name}`"
        message = f"{topology} has {math.prod(axes)} chips and {accelerator} has {chips}; {remedy}"
        raise HardwareError("topology_of_other_chips", "topology", message)
    return TpuSlice.of(row, axes)


def is_tpu(accelerator: str) -> bool:
    """Return True if a name is a TPU generation or has the prefix of an accelerator type."""
    return any(accelerator == row.name or accelerator.startswith(f"{row.type_prefix}-") for row in GENERATIONS.values())


def parse_topology(topology: str) -> tuple[int, ...]:
    """Return the chips along each axis. Raises HardwareError for an invalid topology."""
    if not _TOPOLOGY.fullmatch(topology):
        raise HardwareError(
            "topology_malformed",
            "topology",
            "must be the number of chips along two or three axes, such as 4x4 or 2x2x4",
        )
    return tuple(map(int, topology.split("x")))


def _parse_accelerator(accelerator: str) -> tuple[TpuGeneration, int | None]:
    """Return the generation, and the number of chips if the name has one."""
    if accelerator in GENERATIONS:
        return GENERATIONS[accelerator], None
    match = _TYPE.fullmatch(accelerator)
    for row in GENERATIONS.values():
        if match and match["prefix"] == row.type_prefix:
            chips, rest = divmod(int(match["count"]), row.cores_in_type)
            if rest:
                cores = row.cores_in_type
                message = f"{accelerator} is not a whole number of chips, which have {cores} TensorCores each"
                raise HardwareError("tpu_partial_chip", "accelerator", f"{message}; write a multiple of {cores}")
            return row, chips
    allowed = ", ".join(f"{row.name} ({row.type_prefix}-N)" for row in GENERATIONS.values())
    raise HardwareError("tpu_unknown", "accelerator", f"{accelerator} is not a TPU; write one of {allowed}")


def _is_possible(row: TpuGeneration, axes: tuple[int, ...]) -> bool:
    """Return True if the generation has slices of this topology."""
    if row.dimensions == 2:
        return axes in _SMALL_2D
    if axes in _SMALL_3D or (axes == (1, 1, 1) and 1 in row.hosts):
        return True
    if len(axes) != 3 or any(axis % _CUBE for axis in axes):
        return False
    in_order = not row.sorted_axes or tuple(sorted(axes)) == axes
    return in_order and math.prod(axes) // _CUBE**3 <= row.max_cubes


def _topologies(row: TpuGeneration, chips: int) -> Iterator[tuple[int, ...]]:
    """Yield the possible topologies of `chips` chips. Axes ascend, except in 2x2x1."""
    small = _SMALL_2D if row.dimensions == 2 else ((1, 1, 1), *_SMALL_3D)
    yield from (axes for axes in small if math.prod(axes) == chips and _is_possible(row, axes))
    if row.dimensions == 3 and chips % _CUBE**3 == 0 and chips // _CUBE**3 <= row.max_cubes:
        edges = [edge for edge in range(_CUBE, chips // _CUBE**2 + 1, _CUBE) if chips % edge == 0]
        for first, second in product(edges, edges):
            third, rest = divmod(chips, first * second)
            axes = (first, second, third)
            if not rest and first <= second <= third and _is_possible(row, axes):
                yield axes


def _most_compact(row: TpuGeneration, chips: int, accelerator: str) -> tuple[int, ...]:
    """Return the topology whose longest axis is the shortest."""
    topologies = list(_topologies(row, chips))
    if not topologies:
        remedy = f"write `accelerator: {row.name}` with a `topology`, {_allowed(row)}"
        message = f"{accelerator} has {chips} chips, and {row.name} has no such slice; {remedy}"
        raise HardwareError("tpu_slice_impossible", "accelerator", message)
    return min(topologies, key=lambda axes: (max(axes), axes))


def _allowed(row: TpuGeneration) -> str:
    if row.dimensions == 2:
        return f"one of {', '.join('x'.join(map(str, axes)) for axes in _SMALL_2D)}"
    small = [*(((1, 1, 1),) if 1 in row.hosts else ()), *_SMALL_3D]
    order = ", ascending" if row.sorted_axes else ""
    return (
        f"one of {', '.join('x'.join(map(str, axes)) for axes in small)}, or AxBxC with multiples of "
        f"{_CUBE}{order}, of at most {row.max_cubes * _CUBE**3} chips"
    )


def _example(row: TpuGeneration) -> str:
    axes = _SMALL_2D[3] if row.dimensions == 2 else _SMALL_3D[2]
    return f"`topology: {'x'.join(map(str, axes))}`"
