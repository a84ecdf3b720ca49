"""Simulated Google Cloud: its kinds of resources, and documented rules about resources that use each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from infra.hardware.gce import GCE_MACHINES, disk_quota, gce_family
from infra.hardware.gpus import GPUS
from infra.hardware.machines import MachineType
from infra.hardware.tpus import GENERATIONS, TpuSlice, tpu_slice
from simulation.cloud.model import (
    Autoname,
    CloudState,
    Errors,
    Kind,
    Properties,
    Reference,
    parse_network,
    rule,
    value_at,
)

NETWORK = "gcp:compute/network:Network"
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
ROUTER = "gcp:compute/router:Router"
POLICY = "gcp:compute/resourcePolicy:ResourcePolicy"
CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"
ACCOUNT = "gcp:serviceaccount/account:Account"
BUCKET = "gcp:storage/bucket:Bucket"
REPOSITORY = "gcp:artifactregistry/repository:Repository"
_POOL_MEMBER = re.compile(r"serviceAccount:(?P<pool>[^\[\]\s]+\.svc\.id\.goog)\[[-a-z0-9]+/[-a-z0-9.]+\]")
_ACCOUNT_MEMBER = re.compile(r"serviceAccount:(?P<email>[^@\s]+@(?P<project>[^@\s]+)\.iam\.gserviceaccount\.com)")


def machine_of(inputs: Properties) -> MachineType | None:
    """Return the machine type of the pool's nodes, or None if unknown."""
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

    Without a topology, each node is a separate slice. `simulation.cluster.effects.with_topology` adds a workload
    policy's topology to the inputs.
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
    """Return the zones of the nodes: the given zones, else the location, or zones a to c of a region."""
    given = [zone for zone in inputs.get("nodeLocations") or [] if isinstance(zone, str)]
    place = str(inputs.get("location", ""))
    return given or ([place] if place and not place[-1].isdigit() else [f"{place}-{letter}" for letter in "abc"])


def nodes_per_zone(inputs: Properties) -> int:
    """Return the initial number of nodes per zone. Divide a total minimum by the number of zones."""
    for key in ("nodeCount", "initialNodeCount"):
        if isinstance(inputs.get(key), int):
            return int(inputs[key])
    scaling = inputs.get("autoscaling") or {}
    if scaling.get("minNodeCount"):
        return int(scaling["minNodeCount"])
    minimum, zones = int(scaling.get("totalMinNodeCount") or 0), len(zones_of(inputs))
    return min(-(-minimum // zones), int(scaling.get("totalMaxNodeCount") or minimum) // zones)


def max_nodes(inputs: Properties) -> int:
    """Return the maximum number of nodes in all zones together."""
    zones, scaling = len(zones_of(inputs)), inputs.get("autoscaling") or {}
    if scaling.get("totalMaxNodeCount"):
        return int(scaling["totalMaxNodeCount"])
    if scaling.get("maxNodeCount"):
        return int(scaling["maxNodeCount"]) * zones
    return nodes_per_zone(inputs) * zones


def quota(inputs: Properties) -> Mapping[str, int]:
    """Return quota -> CPUs, GPUs, TPU chips or GB of disks that the pool needs at its maximum size.

    https://cloud.google.com/compute/resource-usage
    """
    machine, nodes = machine_of(inputs), max_nodes(inputs)
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


def _default_pool_quota(cluster: Properties) -> Mapping[str, int]:
    """Return quota -> need of a cluster's default node pool; empty if the cluster removes that pool."""
    if cluster.get("removeDefaultNodePool"):
        return {}
    return quota({**cluster, "nodeCount": cluster.get("initialNodeCount")})


def ranges_of(inputs: Properties) -> list[tuple[str, Any]]:
    """Return path and value of a subnet's primary range and of its secondary ranges."""
    secondary = inputs.get("secondaryIpRanges") or []
    found = [("ipCidrRange", inputs.get("ipCidrRange"))]
    return found + [
        (f"secondaryIpRanges[{index}].ipCidrRange", each.get("ipCidrRange")) for index, each in enumerate(secondary)
    ]


@rule("https://cloud.google.com/vpc/docs/subnets#valid-ranges")
def ranges_of_network(inputs: Properties, state: CloudState) -> Errors:
    """Reject ranges that overlap the ranges of another subnet of the same network."""
    for other in state.of_type(SUBNETWORK):
        same = other.inputs.get("network") == inputs.get("network")
        if not same or (other.inputs.get("name"), other.inputs.get("region")) == (inputs["name"], inputs["region"]):
            continue
        for where, text in ranges_of(inputs):
            for _, other_text in ranges_of(other.inputs):
                new, existing = parse_network(text), parse_network(other_text)
                if new and existing and new.overlaps(existing):
                    yield where, f"{new} overlaps {existing} of subnet {other.inputs['name']}"


@rule("https://cloud.google.com/kubernetes-engine/docs/how-to/alias-ips")
def secondary_ranges_exist(inputs: Properties, state: CloudState) -> Errors:
    """Require that the pod and service ranges are secondary ranges of the cluster's subnet."""
    subnet = state.find(str(inputs.get("subnetwork")), SUBNETWORK)
    if subnet is None:
        return
    names = [each.get("rangeName") for each in subnet.inputs.get("secondaryIpRanges") or []]
    for key in ("clusterSecondaryRangeName", "servicesSecondaryRangeName"):
        name = value_at(inputs, f"ipAllocationPolicy.{key}")
        if isinstance(name, str) and name not in names:
            yield f"ipAllocationPolicy.{key}", f"{name!r} is not a secondary range of subnet {subnet.inputs['name']}"


@rule("https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity")
def workload_pool_exists(inputs: Properties, state: CloudState) -> Errors:
    """Require that the workload identity pool of a member exists, if the member is a Kubernetes service account.

    GKE creates the pool with a project's first cluster that uses Workload Identity.
    """
    member = inputs.get("member")
    match = _POOL_MEMBER.fullmatch(member) if isinstance(member, str) else None
    if match:
        pool, clusters = match["pool"], state.of_type(CLUSTER)
        pools = {(each.inputs.get("workloadIdentityConfig") or {}).get("workloadPool") for each in clusters}
        if pool not in pools:
            yield "member", f"identity pool {pool} does not exist: no cluster of the project has created it yet"


@rule("https://cloud.google.com/iam/docs/principal-identifiers")
def member_exists(inputs: Properties, state: CloudState) -> Errors:
    """Require that a member exists, if it is a service account of a simulated project."""
    member = inputs.get("member")
    match = _ACCOUNT_MEMBER.fullmatch(member) if isinstance(member, str) else None
    projects = {each.inputs.get("project") for each in state.of_type(ACCOUNT)}
    projects.add(inputs.get("project"))
    if match and match["project"] in projects and state.find(match["email"], ACCOUNT) is None:
        yield "member", f"service account {match['email']} does not exist"


_LINK = "https://www.googleapis.com/compute/v1/{id}"


def _endpoint(found: Properties) -> str:
    return str(found["__settings"].get("endpoint", "cluster.invalid"))


def _compute(type_: str, id_: str, **more: Any) -> Kind:
    return Kind(type=type_, id=id_, outputs={"selfLink": _LINK}, autoname=Autoname(), api="compute", **more)


_COMPUTE = (
    _compute(NETWORK, "projects/{project}/global/networks/{name}", seconds=20, delete_seconds=30),
    _compute(
        SUBNETWORK,
        "projects/{project}/regions/{region}/subnetworks/{name}",
        references=(Reference("network", NETWORK),),
        rules=(ranges_of_network,),
        seconds=30,
        delete_seconds=30,
    ),
    _compute(
        ROUTER,
        "projects/{project}/regions/{region}/routers/{name}",
        references=(Reference("network", NETWORK),),
        seconds=15,
        delete_seconds=15,
    ),
    _compute(
        "gcp:compute/routerNat:RouterNat",
        "{project}/{region}/{router}/{name}",
        references=(Reference("router", ROUTER),),
        seconds=25,
        delete_seconds=20,
    ),
    _compute(POLICY, "projects/{project}/regions/{region}/resourcePolicies/{name}", seconds=5),
    _compute(
        "gcp:compute/firewall:Firewall",
        "projects/{project}/global/firewalls/{name}",
        references=(Reference("network", NETWORK),),
        seconds=15,
        delete_seconds=15,
    ),
)


def cluster_id(found: Properties) -> str:
    """Return the full name of the cluster that a node pool's `cluster` refers to."""
    cluster = str(found.get("cluster", ""))
    return (
        cluster if "/" in cluster else f"projects/{found['project']}/locations/{found['location']}/clusters/{cluster}"
    )


_CONTAINER = (
    Kind(
        type=CLUSTER,
        id="projects/{project}/locations/{location}/clusters/{name}",
        autoname=Autoname(limit=40),
        outputs={
            "selfLink": "https://container.googleapis.com/v1/{id}",
            "endpoint": _endpoint,
            "controlPlaneEndpointsConfig": lambda found: {"dnsEndpointConfig": {"endpoint": _endpoint(found)}},
            "masterAuth": lambda found: {"clusterCaCertificate": found["__settings"].get("certificate", "")},
        },
        references=(
            Reference("network", NETWORK),
            Reference("subnetwork", SUBNETWORK),
            Reference("nodeConfig.serviceAccount", ACCOUNT),
        ),
        rules=(secondary_ranges_exist,),
        api="container",
        seconds=8 * 60,
        delete_seconds=4 * 60,
        quota=_default_pool_quota,
    ),
    Kind(
        type=NODE_POOL,
        id=lambda found: f"{cluster_id(found)}/nodePools/{found['name']}",
        autoname=Autoname(limit=40),
        outputs={
            "nodeCount": nodes_per_zone,
            "initialNodeCount": nodes_per_zone,
        },
        references=(
            Reference("cluster", CLUSTER, is_owner=True),
            Reference("nodeConfig.serviceAccount", ACCOUNT),
            Reference("placementPolicy.policyName", POLICY),
            Reference("networkConfig.additionalNodeNetworkConfigs.network", NETWORK),
            Reference("networkConfig.additionalNodeNetworkConfigs.subnetwork", SUBNETWORK),
        ),
        api="container",
        seconds=4 * 60,
        delete_seconds=4 * 60,
        quota=quota,
    ),
)


def _iam_member_kind(type_: str, resource_id: str, target: Reference | None) -> Kind:
    return Kind(
        type=type_,
        id=f"{resource_id}/{{role}}/{{member}}",
        references=(
            *((target,) if target else ()),
            Reference("member", ACCOUNT, prefix="serviceAccount:", required=False),
        ),
        rules=(workload_pool_exists, member_exists),
        seconds=8,
        delete_seconds=8,
    )


_IDENTITY = (
    Kind(
        type=ACCOUNT,
        id="projects/{project}/serviceAccounts/{accountId}@{project}.iam.gserviceaccount.com",
        outputs={
            "email": "{accountId}@{project}.iam.gserviceaccount.com",
            "member": "serviceAccount:{accountId}@{project}.iam.gserviceaccount.com",
            "name": "{id}",
        },
        api="iam",
        seconds=12,
    ),
    _iam_member_kind(
        "gcp:serviceaccount/iAMMember:IAMMember",
        "{serviceAccountId}",
        Reference("serviceAccountId", ACCOUNT),
    ),
    _iam_member_kind("gcp:projects/iAMMember:IAMMember", "{project}", None),
    Kind(
        type="gcp:projects/service:Service",
        id="{project}/{service}",
        seconds=20,
        delete_seconds=10,
    ),
)

_STORAGE = (
    Kind(
        type=BUCKET,
        id="{name}",
        autoname=Autoname(),
        outputs={"url": "gs://{name}", "selfLink": "https://www.googleapis.com/storage/v1/b/{name}"},
        seconds=2,
    ),
    _iam_member_kind("gcp:storage/bucketIAMMember:BucketIAMMember", "b/{bucket}", Reference("bucket", BUCKET)),
    Kind(
        type=REPOSITORY,
        id="projects/{project}/locations/{location}/repositories/{repositoryId}",
        outputs={"name": "{repositoryId}"},
        api="artifactregistry",
        seconds=12,
        delete_seconds=10,
    ),
    _iam_member_kind(
        "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember",
        "projects/{project}/locations/{location}/repositories/{repository}",
        Reference("repository", REPOSITORY),
    ),
)

KINDS: Mapping[str, Kind] = {kind.type: kind for kind in (*_COMPUTE, *_CONTAINER, *_IDENTITY, *_STORAGE)}
"""Type token -> kind of Google Cloud resource."""
