"""Rules of GKE node pools: machines, accelerators, slices, provisioning models."""

from __future__ import annotations

from infra.hardware.gce import gce_family, gpus_on
from infra.hardware.gpus import GPUS
from simulation.cloud.gcp.cluster_rules import NAME
from simulation.cloud.gcp.network_rules import subnet_range
from simulation.cloud.gcp.node_pools import gpus_of, machine_of, most_nodes, nodes_per_zone, slice_of, zones_of
from simulation.cloud.kind import Found, admission, at, rule
from simulation.cloud.state import CloudState, Properties

_ALLOCATIONS = "https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr"
_DWS = "https://cloud.google.com/kubernetes-engine/docs/concepts/dws"
_DEFAULT_PODS_PER_NODE = 110


@rule("https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/projects.locations.clusters.nodePools")
def node_pool_name(inputs: Properties) -> Found:
    """Require a valid name of at most 40 characters."""
    name = inputs.get("name")
    if isinstance(name, str) and not (NAME.fullmatch(name) and len(name) <= 40):
        yield "name", f"{name!r} must be 1 to 40 lower-case letters, digits and '-', first a letter"


@rule("https://cloud.google.com/compute/docs/gpus")
def gpus_on_machine(inputs: Properties) -> Found:
    """Require a GPU model and count that the machine type supports."""
    machine = machine_of(inputs)
    given = at(inputs, "nodeConfig.guestAccelerators") or []
    if machine is None or not given:
        return
    where, gpu, count = "nodeConfig.guestAccelerators", given[0].get("type"), given[0].get("count")
    if not isinstance(gpu, str) or not isinstance(count, int):
        return
    try:
        gpus_on(machine, gpu, count)
    except ValueError as error:
        yield where, str(error)


@rule("https://cloud.google.com/kubernetes-engine/docs/how-to/gpus#create")
def gpu_driver_version(inputs: Properties) -> Found:
    """Require a driver setting for GPUs.

    A node without a driver never has allocatable GPUs.
    """
    gpu, _ = gpus_of(inputs)
    if gpu not in GPUS:
        return
    where = "gpuDriverInstallationConfig.gpuDriverVersion"
    version = at(inputs, f"nodeConfig.guestAccelerators.{where}")
    if version not in ("DEFAULT", "LATEST", "INSTALLATION_DISABLED"):
        yield f"nodeConfig.guestAccelerators[0].{where}", "must be DEFAULT, LATEST or INSTALLATION_DISABLED"


@rule("https://cloud.google.com/kubernetes-engine/docs/concepts/plan-tpus")
def tpu_topology(inputs: Properties) -> Found:
    """Require a topology of the TPU generation whose hosts have the pool's machine type."""
    where = "placementPolicy.tpuTopology"
    topology = at(inputs, where)
    machine = machine_of(inputs)
    if not isinstance(topology, str) or machine is None:
        return
    if not machine.tpu_chips:
        yield where, f"{machine.name} is not a TPU host"
        return
    try:
        found = slice_of(inputs)
    except ValueError as error:
        yield where, str(error)
        return
    if found and found.machine_type != machine.name:
        yield where, f"the hosts of {topology} are {found.machine_type}, not {machine.name}"
    elif found and found.hosts == 1:
        yield where, f"{topology} is a single host: a pool of single hosts must not set a topology"


@rule("https://cloud.google.com/kubernetes-engine/docs/concepts/tpus#node_pool")
def slice_is_whole(inputs: Properties) -> Found:
    """Require all nodes of a multi-host slice or none, counted in one zone."""
    if not at(inputs, "placementPolicy.tpuTopology"):
        return
    try:
        found = slice_of(inputs)
    except ValueError:
        return
    if found is None or found.hosts == 1:
        return
    scaling = inputs.get("autoscaling") or {}
    if scaling.get("totalMaxNodeCount"):
        yield "autoscaling.totalMaxNodeCount", "a slice needs a maximum per zone: set maxNodeCount"
    elif most_nodes({**inputs, "nodeLocations": zones_of(inputs)[:1]}) != found.hosts:
        key = "autoscaling.maxNodeCount" if scaling else "nodeCount"
        yield key, f"must be {found.hosts}, the hosts of {found.topology_label}"
    if scaling and nodes_per_zone(inputs) not in (0, found.hosts):
        yield "autoscaling.minNodeCount", f"must be 0 or {found.hosts}: a slice scales only as a whole"


@rule("https://cloud.google.com/compute/docs/instances/placement-policies-overview#restrictions")
def compact_placement(inputs: Properties) -> Found:
    """Require a machine family that supports compact placement, in one zone."""
    if at(inputs, "placementPolicy.type") != "COMPACT":
        return
    machine = machine_of(inputs)
    if machine is not None and gce_family(machine).compact == "never":
        yield "placementPolicy.type", f"{machine.name}: the family {machine.family} does not support compact placement"
    if len(zones_of(inputs)) > 1 and inputs.get("nodeLocations"):
        yield "nodeLocations", "must be a single zone with compact placement"


@rule("https://cloud.google.com/kubernetes-engine/docs/how-to/spot-vms")
def one_kind_of_capacity(inputs: Properties) -> Found:
    """Reject combinations of spot, preemptible, flex-start and reservations.

    Require the key of a specific reservation.
    """
    config = inputs.get("nodeConfig") or {}
    reserved = at(config, "reservationAffinity.consumeReservationType") in ("SPECIFIC_RESERVATION", "ANY_RESERVATION")
    if config.get("spot") and reserved:
        yield "nodeConfig.reservationAffinity", "spot nodes cannot use a reservation"
    if config.get("spot") and config.get("flexStart"):
        yield "nodeConfig.spot", "cannot be set together with flexStart"
    if config.get("flexStart") and reserved:
        yield "nodeConfig.reservationAffinity", "flex-start nodes cannot use a reservation"
    if config.get("spot") and config.get("preemptible"):
        yield "nodeConfig.preemptible", "cannot be set together with spot"
    key = at(config, "reservationAffinity.key")
    if at(config, "reservationAffinity.consumeReservationType") == "SPECIFIC_RESERVATION" and not key:
        yield "nodeConfig.reservationAffinity.key", "must be compute.googleapis.com/reservation-name"


@rule(_DWS)
def flex_start(inputs: Properties) -> Found:
    """Require the settings that flex-start and queued provisioning need."""
    flexible, queued = at(inputs, "nodeConfig.flexStart"), at(inputs, "queuedProvisioning.enabled")
    if not (flexible or queued):
        return
    machine = machine_of(inputs)
    if at(inputs, "management.autoRepair") is not False:
        yield "management.autoRepair", "must be false with flex-start"
    if machine is not None and machine.tpu_chips:
        if queued:
            yield "queuedProvisioning", "supports GPUs only: TPU pools use flex-start without a queue"
    elif machine is not None and gpus_of(inputs)[0] is None:
        yield "nodeConfig.flexStart", f"{machine.name} has no accelerator, which flex-start requires"
    if queued and nodes_per_zone(inputs):
        yield "autoscaling.minNodeCount", "must be 0 with queued provisioning"
    if queued and at(inputs, "autoscaling.locationPolicy") != "ANY":
        yield "autoscaling.locationPolicy", "must be ANY with queued provisioning"


@rule("https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-autoscaler")
def autoscaling_bounds(inputs: Properties) -> Found:
    """Require bounds either per zone or in total, with the minimum not above the maximum."""
    scaling = inputs.get("autoscaling") or {}
    for low, high in (("minNodeCount", "maxNodeCount"), ("totalMinNodeCount", "totalMaxNodeCount")):
        least, most = scaling.get(low), scaling.get(high)
        if isinstance(least, int) and isinstance(most, int) and least > most:
            yield f"autoscaling.{low}", f"{least} is more than {high}, {most}"
    if scaling.get("maxNodeCount") and scaling.get("totalMaxNodeCount"):
        yield "autoscaling.totalMaxNodeCount", "cannot be set together with maxNodeCount"


@admission(_ALLOCATIONS)
def pod_range_is_large_enough(inputs: Properties, state: CloudState) -> Found:
    """Require a pod range that is large enough for the maximum size of all the cluster's pools.

    GKE reserves twice as many addresses as pods for each node, rounded up to a power of two.
    """
    cluster = state.find(str(inputs.get("cluster")), "gcp:container/cluster:Cluster")
    if cluster is None:
        return
    name = at(cluster.inputs, "ipAllocationPolicy.clusterSecondaryRangeName")
    pods = subnet_range(state, cluster.inputs.get("subnetwork"), name)
    if pods is None:
        return
    others = [pool.inputs for pool in state.of_type("gcp:container/nodePool:NodePool")]
    mine = [each for each in others if each.get("cluster") == inputs.get("cluster") and each["name"] != inputs["name"]]
    wanted = sum(_addresses(each) for each in (*mine, inputs))
    if wanted > pods.num_addresses:
        yield "maxPodsPerNode", f"the nodes of all pools need {wanted} addresses, but {name} {pods} has fewer"


def _addresses(inputs: Properties) -> int:
    pods = int(inputs.get("maxPodsPerNode") or _DEFAULT_PODS_PER_NODE)
    return int(2 ** (2 * pods - 1).bit_length()) * most_nodes(inputs)


RULES = (
    node_pool_name,
    gpus_on_machine,
    gpu_driver_version,
    tpu_topology,
    slice_is_whole,
    compact_placement,
    one_kind_of_capacity,
    flex_start,
    autoscaling_bounds,
    pod_range_is_large_enough,
)
