"""Google Cloud permissions: the smallest predefined roles with the calls for each kind of resource.

https://cloud.google.com/iam/docs/roles-permissions
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    # The provider lists a pool's instance groups when it reads the pool.
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
"""Pulumi's type -> roles."""

LISTED: Mapping[str, str] = {"instance": "roles/compute.viewer", "secret": "roles/secretmanager.viewer"}
"""Viewer roles of resources and quotas that `make verify-empty` reads but the stack does not create."""
