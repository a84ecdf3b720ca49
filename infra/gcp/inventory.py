"""Google Cloud resource kinds that a GKE stack can leave behind: `gcloud` commands that list them, and IAM roles."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from subprocess import CalledProcessError
from typing import Any

from infra.gcp.config import GkeConfig
from infra.inventory import API_DISABLED, CloudResource, Listing, PlannedResource, RunCommand, resources_in

MIN_NAME_LENGTH = 16
"""Minimum number of characters of a cluster's or pool's name that GKE keeps in machine names.

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

They do not include node pools and NAT, which Google Cloud deletes with the cluster and the router.
"""


def resources(listing: Listing, platform: GkeConfig, run_json: RunCommand) -> Iterator[CloudResource]:
    """Yield all resources of a kind in the platform's project. Yield nothing if the kind's API is disabled."""
    if listing.kind != "binding":
        try:
            found = run_json(*listing.command, f"--project={platform.project}", "--format=json")
        except CalledProcessError as error:
            if not any(words in (error.stderr or "") for words in API_DISABLED):
                raise
            return
        yield from resources_in(listing, found)
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


ROLES: Mapping[str, Sequence[str]] = {
    "gcp:artifactregistry/repository:Repository": ("roles/artifactregistry.admin",),
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": ("roles/artifactregistry.admin",),
    "gcp:compute/firewall:Firewall": ("roles/compute.securityAdmin",),
    "gcp:compute/network:Network": ("roles/compute.networkAdmin",),
    "gcp:compute/resourcePolicy:ResourcePolicy": ("roles/compute.instanceAdmin.v1",),
    "gcp:compute/router:Router": ("roles/compute.networkAdmin",),
    "gcp:compute/routerNat:RouterNat": ("roles/compute.networkAdmin",),
    "gcp:compute/subnetwork:Subnetwork": ("roles/compute.networkAdmin",),
    "gcp:container/cluster:Cluster": ("roles/container.admin", "roles/iam.serviceAccountUser"),
    # The provider lists the instance groups of a pool when it reads the pool.
    "gcp:container/nodePool:NodePool": (
        "roles/container.admin",
        "roles/iam.serviceAccountUser",
        "roles/compute.viewer",
    ),
    "gcp:projects/iAMMember:IAMMember": ("roles/resourcemanager.projectIamAdmin",),
    "gcp:projects/service:Service": ("roles/serviceusage.serviceUsageAdmin",),
    "gcp:serviceaccount/account:Account": ("roles/iam.serviceAccountAdmin",),
    "gcp:serviceaccount/iAMMember:IAMMember": ("roles/iam.serviceAccountAdmin",),
    "gcp:storage/bucket:Bucket": ("roles/storage.admin",),
    "gcp:storage/bucketIAMMember:BucketIAMMember": ("roles/storage.admin",),
}
"""Smallest predefined roles for each Pulumi type: https://cloud.google.com/iam/docs/roles-permissions"""

VIEWER_ROLES: Mapping[str, str] = {"instance": "roles/compute.viewer", "secret": "roles/secretmanager.viewer"}
"""Viewer roles for resource kinds that `make verify-empty` lists but the stack does not create."""

PUSH_ROLE, FIRST_PUSH_ROLE = "roles/artifactregistry.writer", "roles/artifactregistry.createOnPushWriter"
"""Roles to push images. The second role can also create a repository on gcr.io:
https://cloud.google.com/artifact-registry/docs/transition/setup-gcr-repo"""


def permissions(config: GkeConfig, planned: Iterable[PlannedResource]) -> dict[str, Any]:
    """Return bindings of the project roles that a user needs to preview, create, destroy and list resources."""
    planned = list(planned)
    roles = {role for record in planned for role in ROLES.get(record.type, ())}
    # The role for the stack's own repository includes the permission to push.
    if config.image.prebuilt is None and not config.owns_repository:
        roles.add(FIRST_PUSH_ROLE if config.uses_gcr else PUSH_ROLE)
    roles |= {VIEWER_ROLES[listing.kind] for listing in LISTINGS if listing.kind in VIEWER_ROLES}
    grants = [record for record in planned if record.type == "gcp:projects/iAMMember:IAMMember"]
    granted_roles = json.dumps(sorted({record.inputs["role"] for record in grants}))
    expression = f"api.getAttribute('iam.googleapis.com/modifiedGrantsByRole', []).hasOnly({granted_roles})"
    condition = {"title": "grants only these roles", "expression": expression}
    conditions = {"roles/resourcemanager.projectIamAdmin": condition}
    bindings = [{"role": role, **({"condition": conditions[role]} if role in conditions else {})} for role in roles]
    return {"project": config.project, "bindings": sorted(bindings, key=lambda binding: str(binding["role"]))}
