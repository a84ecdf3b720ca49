"""Properties of a GKE node pool from its inputs: machine, accelerators, slice, zones, node counts, quotas."""

from __future__ import annotations

from collections.abc import Mapping

from infra.hardware.gce import GCE_MACHINES, disk_quota, gce_family
from infra.hardware.gpus import GPUS
from infra.hardware.machines import MachineType
from infra.hardware.tpus import GENERATIONS, TpuSlice, tpu_slice
from simulation.cloud.kind import value_at
from simulation.cloud.state import Properties


def machine_of(inputs: Properties) -> MachineType | None:
    """Return the machine type of the pool's nodes; None if it is unknown."""
    name = value_at(inputs, "nodeConfig.machineType") or "e2-medium"
    return GCE_MACHINES.get(name) if isinstance(name, str) else None


def gpus_of(inputs: Properties) -> tuple[str | None, int]:
    """Return the model and the number of GPUs of each node."""
    machine = machine_of(inputs)
    given = value_at(inputs, "nodeConfig.guestAccelerators")
    first = given[0] if isinstance(given, list) and given else {}
    if first.get("type"):
        return first["type"], int(first.get("count") or 0)
    return (machine.gpu, machine.gpus) if machine else (None, 0)


def slice_of(inputs: Properties) -> TpuSlice | None:
    """Return the pool's TPU slice; None if its machine type has no TPU. Raises ValueError for an invalid topology.

    Without a topology, each node is a slice of its own. `with_topology` adds that of a workload policy to the inputs.
    """
    machine = machine_of(inputs)
    if machine is None or not machine.tpu_chips:
        return None
    generation = _generation(machine)
    topology = value_at(inputs, "placementPolicy.tpuTopology") or inputs.get("__workloadPolicyTopology")
    if topology is None:
        row = GENERATIONS[generation]
        return tpu_slice(f"{row.type_prefix}-{machine.tpu_chips * row.cores_in_type}")
    return tpu_slice(generation, topology)


def _generation(machine: MachineType) -> str:
    return next(name for name, row in GENERATIONS.items() if machine.name in row.machine_types.values())


def zones_of(inputs: Properties) -> list[str]:
    """Return the zones of the nodes: the given ones, else the location, or zones a to c of a region."""
    given = [zone for zone in inputs.get("nodeLocations") or [] if isinstance(zone, str)]
    place = str(inputs.get("location", ""))
    return given or ([place] if place and not place[-1].isdigit() else [f"{place}-{letter}" for letter in "abc"])


def nodes_per_zone(inputs: Properties) -> int:
    """Return the initial number of nodes: per zone, or in total if only totalMinNodeCount is set."""
    for key in ("nodeCount", "initialNodeCount"):
        if isinstance(inputs.get(key), int):
            return int(inputs[key])
    scaling = inputs.get("autoscaling") or {}
    return int(scaling.get("minNodeCount") or scaling.get("totalMinNodeCount") or 0)


def most_nodes(inputs: Properties) -> int:
    """Return the maximum number of nodes in all zones together."""
    zones, scaling = len(zones_of(inputs)), inputs.get("autoscaling") or {}
    if scaling.get("totalMaxNodeCount"):
        return int(scaling["totalMaxNodeCount"])
    if scaling.get("maxNodeCount"):
        return int(scaling["maxNodeCount"]) * zones
    return nodes_per_zone(inputs) * zones


def quota(inputs: Properties) -> Mapping[str, int]:
    """Return the quotas that the pool needs at its maximum size: CPUs, GPUs, TPU chips, boot disks.

    https://cloud.google.com/compute/resource-usage
    """
    machine, nodes = machine_of(inputs), most_nodes(inputs)
    region = zones_of(inputs)[0].rpartition("-")[0] if inputs.get("location") else ""
    if machine is None:
        return {}
    spot = "PREEMPTIBLE_" if value_at(inputs, "nodeConfig.spot") or value_at(inputs, "nodeConfig.flexStart") else ""
    gpu, count = gpus_of(inputs)
    found: dict[str, int] = {}
    if gpu is not None and gpu in GPUS and (gpu_quota := GPUS[gpu].gce_quota):
        found[f"{region}/{spot}{gpu_quota}"] = count * nodes
    if machine.tpu_chips:
        found[f"{region}/{spot}{GENERATIONS[_generation(machine)].quota}"] = machine.tpu_chips * nodes
    if cpu_quota := gce_family(machine).cpu_quota:
        found[f"{region}/{cpu_quota}"] = machine.vcpus * nodes
    disk = value_at(inputs, "nodeConfig.diskType") or "pd-balanced"
    kind = "DISKS_TOTAL_GB" if disk == "pd-standard" else disk_quota(disk)
    found[f"{region}/{kind}"] = int(value_at(inputs, "nodeConfig.diskSizeGb") or 100) * nodes
    return found


def quota_of_default_pool(inputs: Properties) -> Mapping[str, int]:
    """Return the quotas that a cluster's default node pool needs."""
    return quota({**inputs, "nodeCount": inputs.get("initialNodeCount")})
