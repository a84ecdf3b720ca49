"""Google Cloud permissions: the smallest predefined roles for each kind of resource.

https://cloud.google.com/iam/docs/roles-permissions
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from infra.gcp.inventory import LISTINGS
from infra.inventory import PlannedResource

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
"""Roles for each Pulumi type."""

VIEWER_ROLES: Mapping[str, str] = {"instance": "roles/compute.viewer", "secret": "roles/secretmanager.viewer"}
"""Viewer roles for resource kinds that `make verify-empty` lists but the stack does not create."""


def permissions(project: str, planned: Iterable[PlannedResource]) -> dict[str, Any]:
    """Return the project roles to preview, create, destroy and list resources."""
    planned = list(planned)
    roles = {role for record in planned for role in ROLES.get(record.type, ())}
    roles |= {VIEWER_ROLES[listing.kind] for listing in LISTINGS if listing.kind in VIEWER_ROLES}
    grants = [record for record in planned if record.type == "gcp:projects/iAMMember:IAMMember"]
    granted_roles = json.dumps(sorted({record.inputs["role"] for record in grants}))
    expression = f"api.getAttribute('iam.googleapis.com/modifiedGrantsByRole', []).hasOnly({granted_roles})"
    condition = {"title": "grants only these roles", "expression": expression}
    conditions = {"roles/resourcemanager.projectIamAdmin": condition}
    bindings = [{"role": role, **({"condition": conditions[role]} if role in conditions else {})} for role in roles]
    return {"project": project, "bindings": sorted(bindings, key=lambda binding: str(binding["role"]))}
