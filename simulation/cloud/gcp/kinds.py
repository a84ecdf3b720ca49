"""Kinds of Google Cloud resources that a training stack uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from simulation.cloud.gcp import node_pools, rules
from simulation.cloud.kind import Autoname, Kind, Reference
from simulation.cloud.state import Properties

NETWORK = "gcp:compute/network:Network"
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
ROUTER = "gcp:compute/router:Router"
POLICY = "gcp:compute/resourcePolicy:ResourcePolicy"
CLUSTER = "gcp:container/cluster:Cluster"
NODE_POOL = "gcp:container/nodePool:NodePool"
ACCOUNT = "gcp:serviceaccount/account:Account"
BUCKET = "gcp:storage/bucket:Bucket"
REPOSITORY = "gcp:artifactregistry/repository:Repository"

_LINK = "https://www.googleapis.com/compute/v1/{id}"


def _dns_endpoint(found: Properties) -> Properties:
    return {"dnsEndpointConfig": {"endpoint": found["__settings"].get("endpoint", "cluster.invalid")}}


def _certificate(found: Properties) -> Properties:
    return {"clusterCaCertificate": found["__settings"].get("certificate", "")}


_ACCESS: Mapping[str, Callable[[Properties], object]] = {
    "endpoint": lambda found: found["__settings"].get("endpoint", "cluster.invalid"),
    "controlPlaneEndpointsConfig": _dns_endpoint,
    "masterAuth": _certificate,
}
"""Outputs with the API server's address and certificate, from the rehearsal's settings."""


def _compute(type_: str, id_: str, **more: Any) -> Kind:
    return Kind(type=type_, id=id_, outputs={"selfLink": _LINK}, autoname=Autoname(), api="compute", **more)


_COMPUTE = (
    _compute(
        NETWORK,
        "projects/{project}/global/networks/{name}",
        seconds=20,
        delete_seconds=30,
    ),
    _compute(
        SUBNETWORK,
        "projects/{project}/regions/{region}/subnetworks/{name}",
        references=(Reference(path="network", types=(NETWORK,)),),
        rules=(rules.ranges_of_network,),
        seconds=30,
        delete_seconds=30,
    ),
    _compute(
        ROUTER,
        "projects/{project}/regions/{region}/routers/{name}",
        references=(Reference(path="network", types=(NETWORK,)),),
        seconds=15,
        delete_seconds=15,
    ),
    _compute(
        "gcp:compute/routerNat:RouterNat",
        "{project}/{region}/{router}/{name}",
        references=(Reference(path="router", types=(ROUTER,)),),
        seconds=25,
        delete_seconds=20,
    ),
    _compute(
        POLICY,
        "projects/{project}/regions/{region}/resourcePolicies/{name}",
        seconds=5,
    ),
    _compute(
        "gcp:compute/firewall:Firewall",
        "projects/{project}/global/firewalls/{name}",
        references=(Reference(path="network", types=(NETWORK,)),),
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


def _has_default_pool(found: Properties) -> bool:
    return not found.get("removeDefaultNodePool")


_CONTAINER = (
    Kind(
        type=CLUSTER,
        id="projects/{project}/locations/{location}/clusters/{name}",
        autoname=Autoname(limit=40),
        outputs={
            "selfLink": "https://container.googleapis.com/v1/{id}",
            **_ACCESS,
        },
        references=(
            Reference(path="network", types=(NETWORK,)),
            Reference(path="subnetwork", types=(SUBNETWORK,)),
            Reference(path="nodeConfig.serviceAccount", types=(ACCOUNT,)),
        ),
        rules=(rules.secondary_ranges_exist,),
        api="container",
        seconds=8 * 60,
        delete_seconds=4 * 60,
        quota=lambda found: node_pools.quota_of_default_pool(found) if _has_default_pool(found) else {},
    ),
    Kind(
        type=NODE_POOL,
        id=lambda found: f"{cluster_id(found)}/nodePools/{found['name']}",
        autoname=Autoname(limit=40),
        outputs={
            "nodeCount": node_pools.nodes_per_zone,
            "initialNodeCount": node_pools.nodes_per_zone,
        },
        references=(
            Reference(path="cluster", types=(CLUSTER,), owner=True),
            Reference(path="nodeConfig.serviceAccount", types=(ACCOUNT,)),
            Reference(path="placementPolicy.policyName", types=(POLICY,)),
            Reference(path="networkConfig.additionalNodeNetworkConfigs.network", types=(NETWORK,)),
            Reference(path="networkConfig.additionalNodeNetworkConfigs.subnetwork", types=(SUBNETWORK,)),
        ),
        api="container",
        seconds=4 * 60,
        delete_seconds=4 * 60,
        quota=node_pools.quota,
    ),
)


def _members(type_: str, of: str, target: Reference | None) -> Kind:
    return Kind(
        type=type_,
        id=f"{of}/{{role}}/{{member}}",
        references=(
            *((target,) if target else ()),
            Reference(path="member", types=(ACCOUNT,), prefix="serviceAccount:", required=False),
        ),
        rules=rules.MEMBER_RULES,
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
    _members(
        "gcp:serviceaccount/iAMMember:IAMMember",
        "{serviceAccountId}",
        Reference(path="serviceAccountId", types=(ACCOUNT,)),
    ),
    _members("gcp:projects/iAMMember:IAMMember", "{project}", None),
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
    _members("gcp:storage/bucketIAMMember:BucketIAMMember", "b/{bucket}", Reference(path="bucket", types=(BUCKET,))),
    Kind(
        type=REPOSITORY,
        id="projects/{project}/locations/{location}/repositories/{repositoryId}",
        outputs={"name": "{repositoryId}"},
        api="artifactregistry",
        seconds=12,
        delete_seconds=10,
    ),
    _members(
        "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember",
        "projects/{project}/locations/{location}/repositories/{repository}",
        Reference(path="repository", types=(REPOSITORY,)),
    ),
)

KINDS: Mapping[str, Kind] = {kind.type: kind for kind in (*_COMPUTE, *_CONTAINER, *_IDENTITY, *_STORAGE)}
"""Kinds of Google Cloud resources, by type token."""
