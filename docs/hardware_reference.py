"""The page docs/hardware.md: machine types with accelerators, and their prices with region, source and date."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from infra.aws import pools as aws
from infra.cost import Line, Price, price_line
from infra.gcp import pools as gcp
from infra.hardware.ec2 import EC2_FAMILIES, EC2_MACHINES, Ec2Machine
from infra.hardware.gce import GCE_FAMILIES, gce_family, gce_machine
from infra.hardware.gpus import GPUS
from infra.hardware.machines import MachineType
from infra.hardware.tpus import GENERATIONS, TpuGeneration

REGIONS = {gcp.CLOUD: "us-central1", aws.CLOUD: "us-east-1"}
"""Preferred region of the prices. An item without a price there has the price of another region."""
ATTACHED_VCPUS = 4
"""vCPUs for each GPU of the page's N1 machines. A stack can choose other numbers."""

INTRODUCTION = """\
# Hardware and prices

The machines with GPUs and TPUs that Trainyard's tables contain, generated from `infra/hardware` and `infra/cost.py` by
`python -m docs.references`.

Prices are list prices of one machine in US dollars an hour, without boot disks, network and the cluster. Each row has
the region of the prices, and their sources with dates. Prices of other regions differ, and spot prices change.
"unknown" means that no source was found. `make preview` adds up a whole stack, with boot disks, system nodes and
control plane.

- The headings have the names for `accelerator:` of jobs and pools, on GKE and on EKS.
- GiB is the memory of the host. The memory of a GPU: [Google](https://cloud.google.com/compute/docs/gpus),
  [AWS](https://docs.aws.amazon.com/ec2/latest/instancetypes/ac.html).
- For most of this hardware, the tables list the zones or regions that have it. Trainyard rejects others.
- To add a missing machine type, see [extending.md](extending.md#a-machine-type).
"""
HEADER = "| machine type | {} | vCPUs | GiB | on demand | spot | region | sources |\n|---|---|---|---|---|---|---|---|"


@dataclass(frozen=True, kw_only=True)
class PricedMachine:
    """Machine type with the price lines of one machine."""

    machine: MachineType
    count: int
    """Number of its accelerators."""
    lines: tuple[Line, ...]
    is_block: bool = False
    """True for a capacity block, which has no spot price."""

    def row(self, sources: Mapping[tuple[str, str], int]) -> str:
        """Return the row of the table; `sources` numbers each pair of URL and date."""
        prices = tuple(self.prices())
        numbers = sorted({sources[_source(price)] for price in prices})
        cells = [
            f"`{self.machine.name}`{' in a capacity block' if self.is_block else ''}",
            str(self.count),
            str(self.machine.vcpus),
            f"{self.machine.memory_gib:,g}",
            _cost_text(self.lines, spot=False),
            "-" if self.is_block else _cost_text(self.lines, spot=True),
            ", ".join(dict.fromkeys(price.region for price in prices)) or "-",
            ", ".join(f"[{number}](#sources)" for number in numbers) or "-",
        ]
        return f"| {' | '.join(cells)} |"

    def prices(self) -> Iterator[Price]:
        """Yield the known prices."""
        for line in self.lines:
            yield from (price for price in (line.on_demand_price, line.spot_price) if price)


def render() -> str:
    """Return the text of the page."""
    sections = [*_gke_gpus(), *_tpus(), *_eks_gpus()]
    found = [_source(price) for _, machines in sections for each in machines for price in each.prices()]
    sources = {source: number for number, source in enumerate(dict.fromkeys(found), 1)}
    parts = [INTRODUCTION]
    for heading, machines in sections:
        parts.append("\n".join([heading, *_table(machines, sources), ""]))
    parts.append("\n".join(["## Sources", "", *_source_rows(sources), ""]))
    return "\n".join(parts)


def _table(machines: Sequence[PricedMachine], sources: Mapping[tuple[str, str], int]) -> Iterator[str]:
    """Yield an empty line and the lines of the table, or nothing without machines."""
    if machines:
        yield ""
        yield HEADER.format("chips" if machines[0].machine.tpu_chips else "GPUs")
        yield from (each.row(sources) for each in machines)


def _gke_gpus() -> Iterator[tuple[str, list[PricedMachine]]]:
    """Yield heading and machine types of each GPU model on GKE."""
    yield "## GPUs on GKE", []
    for gpu in GPUS.values():
        counts = gpu.attachment.counts if gpu.attachment else ()
        # GPUs are attached to N1 machines.
        attached = [_with_gpus(gce_machine(f"n1-standard-{ATTACHED_VCPUS * each}"), gpu.name, each) for each in counts]
        built_in = [
            _with_gpus(machine, gpu.name, machine.gpus)
            for family in GCE_FAMILIES.values()
            for machine in family.machines
            if machine.gpu == gpu.name
        ]
        if machines := attached + built_in:
            yield f"### `{gpu.name}`", machines


def _with_gpus(machine: MachineType, gpu: str, count: int) -> PricedMachine:
    """Return a machine with GPUs, and its prices in the preferred region or else in another region with a price."""
    family = gce_family(machine)
    region = _region(gcp.gpu_line("", REGIONS[gcp.CLOUD], gpu, family, count))
    lines = (gcp.gpu_line("", region, gpu, family, count), *gcp.machine_lines("", region, machine, 1))
    return PricedMachine(machine=machine, count=count, lines=lines)


def _tpus() -> Iterator[tuple[str, list[PricedMachine]]]:
    yield "## TPUs on GKE", []
    for generation in GENERATIONS.values():
        title = f"### `{generation.name}` with a topology, or `{generation.type_prefix}-N`"
        zones = ", ".join(sorted(generation.zones))
        cores = generation.cores_in_type
        unit = "chips" if cores == 1 else f"TensorCores, {cores} for each chip"
        text = f"N counts {unit}. A slice of several hosts has hosts of 4 chips. Zones: {zones}."
        yield f"{title}\n\n{text}", _with_tpus(generation)


def _with_tpus(generation: TpuGeneration) -> list[PricedMachine]:
    """Return the machines of a TPU generation with their prices, in the regions of `_with_gpus`."""
    family = GCE_FAMILIES[generation.name]
    region = _region(gcp.tpu_line("", REGIONS[gcp.CLOUD], generation.name, 1))
    return [
        PricedMachine(
            machine=machine,
            count=machine.tpu_chips,
            lines=(gcp.tpu_line("", region, generation.name, machine.tpu_chips),),
        )
        for machine in family.machines
    ]


def _eks_gpus() -> Iterator[tuple[str, list[PricedMachine]]]:
    yield "## GPUs on EKS", []
    for gpu in GPUS:
        machines = [machine for machine in EC2_MACHINES.values() if machine.gpu == gpu]
        if priced := [each for machine in machines for each in _priced_instances(machine)]:
            yield f"### `{gpu}` on EKS", priced


def _priced_instances(machine: Ec2Machine) -> Iterator[PricedMachine]:
    """Yield the prices of an instance type on demand, and in a capacity block if AWS sells blocks of its family."""
    for is_block in (False, True) if EC2_FAMILIES[machine.family].capacity_blocks else (False,):
        name = f"{machine.name} in a capacity block" if is_block else machine.name
        line = price_line("", aws.CLOUD, REGIONS[aws.CLOUD], name, 1)
        yield PricedMachine(machine=machine, count=machine.gpus, lines=(line,), is_block=is_block)


def _region(line: Line) -> str:
    """Return the region of a line's price, or the line's own region if it has no price."""
    price = line.on_demand_price or line.spot_price
    return price.region if price else line.region


def _cost_text(lines: Iterable[Line], *, spot: bool) -> str:
    """Return the cost of one machine, or `unknown` if a line has no price."""
    costs = [line.cost(spot=spot) for line in lines]
    return "unknown" if None in costs else f"${sum(cost.amount for cost in costs if cost):,.2f}"


def _source(price: Price) -> tuple[str, str]:
    return price.source, price.day.isoformat()


def _source_rows(sources: Mapping[tuple[str, str], int]) -> Iterator[str]:
    yield "The date is that of the source, or the day of reading if the source has no date."
    yield ""
    for (url, day), number in sources.items():
        yield f"{number}. {day}: {url}"
