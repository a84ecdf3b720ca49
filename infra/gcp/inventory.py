"""Inventory of Google Cloud: the resource kinds that a GKE stack could leave behind, as `gcloud` lists them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from infra.gcp.config import GkeConfig
from infra.inventory import CloudResource, Listing, PlannedResource, RunCommand, resources_in

MIN_NAME_LENGTH = 16
"""Minimum length to which GKE truncates cluster and pool names in machine names.

https://github.com/kubernetes/ingress-gce/pull/1623, https://github.com/vanvalenlab/kiosk-console/pull/259
"""


def _compute(kind: str, command: str, *types: str) -> Listing:
    return Listing(kind=kind, command=("gcloud", "compute", *command.split(), "list"), types=types)


LISTINGS = (
    Listing(
        kind="cluster",
        command=("gcloud", "container", "clusters", "list"),
        labels="resourceLabels",
        types=("gcp:container/cluster:Cluster",),
    ),
    _compute("instance group", "instance-groups"),
    _compute("instance", "instances"),
    _compute("disk", "disks", "gcp:compute/disk:Disk"),
    _compute("address", "addresses", "gcp:compute/address:Address"),
    _compute("firewall rule", "firewall-rules", "gcp:compute/firewall:Firewall"),
    _compute("endpoint group", "network-endpoint-groups"),
    _compute("forwarding rule", "forwarding-rules"),
    _compute("router", "routers", "gcp:compute/router:Router"),
    _compute("subnetwork", "networks subnets", "gcp:compute/subnetwork:Subnetwork"),
    _compute("network", "networks", "gcp:compute/network:Network"),
    _compute("resource policy", "resource-policies", "gcp:compute/resourcePolicy:ResourcePolicy"),
    Listing(
        kind="service account",
        command=("gcloud", "iam", "service-accounts", "list"),
        name="email",
        types=("gcp:serviceaccount/account:Account",),
    ),
    Listing(
        kind="binding",
        command=("gcloud", "projects", "get-iam-policy"),
        rows="bindings",
        types=("gcp:projects/iAMMember:IAMMember",),
    ),
    Listing(kind="bucket", command=("gcloud", "storage", "buckets", "list"), types=("gcp:storage/bucket:Bucket",)),
    Listing(
        kind="image repository",
        command=("gcloud", "artifacts", "repositories", "list"),
        types=("gcp:artifactregistry/repository:Repository",),
    ),
    Listing(kind="secret", command=("gcloud", "secrets", "list"), types=("gcp:secretmanager/secret:Secret",)),
)
"""Resource kinds, from https://cloud.google.com/sdk/gcloud/reference.

Node pools and NAT are deleted with their owners.
"""


def resources(listing: Listing, platform: GkeConfig, run_json: RunCommand) -> Iterator[CloudResource]:
    """Yield all resources of a kind in the platform's project."""
    if listing.kind != "binding":
        yield from resources_in(listing, run_json(*listing.command, f"--project={platform.project}", "--format=json"))
        return
    answer = run_json(*listing.command, platform.project, "--format=json")
    members = {member for binding in answer.get("bindings", []) for member in binding["members"]}
    yield from (CloudResource(kind=listing.kind, name=member, labels={}) for member in sorted(members))


def generated_names(cluster: str, planned: Iterable[PlannedResource]) -> Mapping[str, str]:
    """Return patterns of the names that GKE generates for a cluster, by kind."""
    pools = {resource.inputs["name"] for resource in planned if resource.type == "gcp:container/nodePool:NodePool"}
    any_pool = "|".join(_name_pattern(pool) for pool in {*pools, "default-pool"})
    group = f"gke-{_name_pattern(cluster)}-({any_pool})-[0-9a-f]{{8}}"
    return {
        "instance group": f"{group}-grp",
        "instance": f"{group}-[a-z0-9]{{4}}",
        "disk": f"{group}-[a-z0-9]{{4}}",
        "firewall rule": f"gke-{_name_pattern(cluster)}-[0-9a-f]{{8}}-[a-z]+",
    }


def _name_pattern(name: str) -> str:
    """Return a pattern that matches the name, complete or truncated."""
    return f"({'|'.join(re.escape(name[:end]) for end in range(min(MIN_NAME_LENGTH, len(name)), len(name) + 1))})"
