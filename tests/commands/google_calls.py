"""Calls of Google's provider for each type in a GKE stack, the permissions of each call, and roles with them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Calls:
    """Calls for one type of resource. An import reads."""

    source: str
    """Source of its creation, below google-beta/services of terraform-provider-google-beta 93c65b2d."""
    api: str
    """API and version."""
    create: Sequence[str]
    read: Sequence[str]
    update: Sequence[str] = ()
    """Calls of an update; empty if every change is a replacement."""
    delete: Sequence[str]
    more: Sequence[str] = ()
    """Permissions for its side effects: it acts as the nodes' account, or calls another API."""

    @property
    def methods(self) -> set[str]:
        """Return the ids of all methods in the API's discovery document."""
        service = self.api.partition(".")[0]
        return {f"{service}.{each}" for each in (*self.create, *self.read, *self.update, *self.delete)}


CALLS: Mapping[str, Calls] = {
    "gcp:artifactregistry/repository:Repository": Calls(
        source="artifactregistry/resource_artifact_registry_repository.go:949",
        api="artifactregistry.v1",
        create=("projects.locations.repositories.create", "projects.locations.operations.get"),
        read=("projects.locations.repositories.get",),
        update=("projects.locations.repositories.patch",),
        delete=("projects.locations.repositories.delete", "projects.locations.operations.get"),
    ),
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": Calls(
        source="artifactregistry/iam_artifact_registry_repository.go:189",
        api="artifactregistry.v1",
        create=("projects.locations.repositories.getIamPolicy", "projects.locations.repositories.setIamPolicy"),
        read=("projects.locations.repositories.getIamPolicy",),
        delete=("projects.locations.repositories.getIamPolicy", "projects.locations.repositories.setIamPolicy"),
    ),
    "gcp:compute/firewall:Firewall": Calls(
        source="compute/resource_compute_firewall.go:559",
        api="compute.beta",
        create=("firewalls.insert", "globalOperations.get"),
        read=("firewalls.get",),
        update=("firewalls.patch", "globalOperations.get"),
        delete=("firewalls.delete", "globalOperations.get"),
    ),
    "gcp:compute/network:Network": Calls(
        source="compute/resource_compute_network.go:328",
        api="compute.beta",
        create=("networks.insert", "globalOperations.get"),
        read=("networks.get",),
        update=("networks.patch", "globalOperations.get"),
        delete=("networks.delete", "globalOperations.get"),
    ),
    "gcp:compute/resourcePolicy:ResourcePolicy": Calls(
        source="compute/resource_compute_resource_policy.go:553",
        api="compute.beta",
        create=("resourcePolicies.insert", "regionOperations.get"),
        read=("resourcePolicies.get",),
        update=("resourcePolicies.patch", "regionOperations.get"),
        delete=("resourcePolicies.delete", "regionOperations.get"),
    ),
    "gcp:compute/router:Router": Calls(
        source="compute/resource_compute_router.go:377",
        api="compute.beta",
        create=("routers.insert", "regionOperations.get"),
        read=("routers.get",),
        update=("routers.patch", "regionOperations.get"),
        delete=("routers.delete", "regionOperations.get"),
    ),
    "gcp:compute/routerNat:RouterNat": Calls(
        source="compute/resource_compute_router_nat.go:711",
        api="compute.beta",
        create=("routers.get", "routers.patch", "regionOperations.get"),
        read=("routers.get",),
        update=("routers.get", "routers.patch", "regionOperations.get"),
        delete=("routers.get", "routers.patch", "regionOperations.get"),
    ),
    "gcp:compute/subnetwork:Subnetwork": Calls(
        source="compute/resource_compute_subnetwork.go:926",
        api="compute.beta",
        create=("subnetworks.insert", "regionOperations.get"),
        read=("subnetworks.get",),
        update=(
            "subnetworks.get",
            "subnetworks.patch",
            "subnetworks.expandIpCidrRange",
            "subnetworks.setPrivateIpGoogleAccess",
            "regionOperations.get",
        ),
        delete=("subnetworks.delete", "regionOperations.get"),
    ),
    "gcp:container/cluster:Cluster": Calls(
        source="container/resource_container_cluster.go:3136",
        api="container.v1beta1",
        create=(
            "projects.locations.clusters.create",
            "projects.locations.operations.get",
            "projects.locations.clusters.get",
            "projects.locations.clusters.nodePools.delete",
        ),
        read=("projects.locations.clusters.get",),
        update=(
            "projects.locations.clusters.update",
            "projects.locations.clusters.setLegacyAbac",
            "projects.locations.clusters.setMaintenancePolicy",
            "projects.locations.clusters.setResourceLabels",
            "projects.locations.operations.get",
        ),
        delete=(
            "projects.locations.clusters.get",
            "projects.locations.clusters.delete",
            "projects.locations.operations.get",
        ),
        more=("iam.serviceAccounts.actAs",),
    ),
    "gcp:container/nodePool:NodePool": Calls(
        source="container/resource_container_node_pool.go:842",
        api="container.v1beta1",
        create=(
            "projects.locations.clusters.nodePools.get",
            "projects.locations.clusters.nodePools.create",
            "projects.locations.operations.get",
        ),
        read=("projects.locations.clusters.nodePools.list", "projects.locations.clusters.nodePools.get"),
        update=(
            "projects.locations.clusters.update",
            "projects.locations.clusters.nodePools.setSize",
            "projects.locations.clusters.nodePools.setManagement",
            "projects.locations.clusters.nodePools.update",
            "projects.locations.operations.get",
        ),
        delete=(
            "projects.locations.clusters.nodePools.get",
            "projects.locations.clusters.nodePools.delete",
            "projects.locations.operations.get",
        ),
        more=("compute.instanceGroupManagers.list", "iam.serviceAccounts.actAs"),
    ),
    "gcp:projects/iAMMember:IAMMember": Calls(
        source="resourcemanager/iam_project.go:93",
        api="cloudresourcemanager.v1",
        create=("projects.getIamPolicy", "projects.setIamPolicy"),
        read=("projects.getIamPolicy",),
        delete=("projects.getIamPolicy", "projects.setIamPolicy"),
    ),
    "gcp:projects/service:Service": Calls(
        source="resourcemanager/resource_google_project_service.go:217",
        api="serviceusage.v1beta1",
        create=("services.list", "services.batchEnable", "services.enable", "operations.get"),
        read=("services.list",),
        delete=("services.disable", "operations.get"),
        more=("resourcemanager.projects.get",),
    ),
    "gcp:serviceaccount/account:Account": Calls(
        source="resourcemanager/resource_google_service_account.go:140",
        api="iam.v1",
        create=("projects.serviceAccounts.create", "projects.serviceAccounts.get"),
        read=("projects.serviceAccounts.get",),
        update=("projects.serviceAccounts.get", "projects.serviceAccounts.patch"),
        delete=("projects.serviceAccounts.delete",),
    ),
    "gcp:serviceaccount/iAMMember:IAMMember": Calls(
        source="resourcemanager/iam_service_account.go:85",
        api="iam.v1",
        create=("projects.serviceAccounts.getIamPolicy", "projects.serviceAccounts.setIamPolicy"),
        read=("projects.serviceAccounts.getIamPolicy",),
        delete=("projects.serviceAccounts.getIamPolicy", "projects.serviceAccounts.setIamPolicy"),
    ),
    "gcp:storage/bucket:Bucket": Calls(
        source="storage/resource_storage_bucket.go:887",
        api="storage.v1",
        create=("buckets.insert", "buckets.get"),
        read=("buckets.get",),
        update=("buckets.patch", "buckets.get"),
        delete=("anywhereCaches.list", "objects.list", "objects.delete", "buckets.delete"),
    ),
    "gcp:storage/bucketIAMMember:BucketIAMMember": Calls(
        source="storage/iam_storage_bucket.go:106",
        api="storage.v1",
        create=("buckets.getIamPolicy", "buckets.setIamPolicy"),
        read=("buckets.getIamPolicy",),
        delete=("buckets.getIamPolicy", "buckets.setIamPolicy"),
    ),
}
"""Pulumi's type -> calls."""

PERMISSIONS: Mapping[str, Sequence[str]] = {
    "artifactregistry.projects.locations.operations.get": (),
    "artifactregistry.projects.locations.repositories.create": ("artifactregistry.repositories.create",),
    "artifactregistry.projects.locations.repositories.delete": ("artifactregistry.repositories.delete",),
    "artifactregistry.projects.locations.repositories.get": ("artifactregistry.repositories.get",),
    "artifactregistry.projects.locations.repositories.getIamPolicy": ("artifactregistry.repositories.getIamPolicy",),
    "artifactregistry.projects.locations.repositories.patch": (
        "artifactregistry.repositories.get",
        "artifactregistry.repositories.update",
    ),
    "artifactregistry.projects.locations.repositories.setIamPolicy": ("artifactregistry.repositories.setIamPolicy",),
    "cloudresourcemanager.projects.getIamPolicy": ("resourcemanager.projects.getIamPolicy",),
    "cloudresourcemanager.projects.setIamPolicy": ("resourcemanager.projects.setIamPolicy",),
    "compute.firewalls.delete": ("compute.firewalls.delete", "compute.networks.updatePolicy"),
    "compute.firewalls.get": ("compute.firewalls.get",),
    "compute.firewalls.insert": ("compute.firewalls.create",),
    "compute.firewalls.patch": ("compute.firewalls.get", "compute.firewalls.update", "compute.networks.updatePolicy"),
    "compute.globalOperations.get": ("compute.globalOperations.get",),
    "compute.networks.delete": ("compute.networks.delete",),
    "compute.networks.get": ("compute.networks.get",),
    "compute.networks.insert": ("compute.networks.create",),
    "compute.networks.patch": ("compute.networks.get", "compute.networks.update"),
    "compute.regionOperations.get": ("compute.regionOperations.get",),
    "compute.resourcePolicies.delete": ("compute.resourcePolicies.delete",),
    "compute.resourcePolicies.get": ("compute.resourcePolicies.get",),
    "compute.resourcePolicies.insert": ("compute.resourcePolicies.create",),
    "compute.resourcePolicies.patch": ("compute.resourcePolicies.get", "compute.resourcePolicies.update"),
    "compute.routers.delete": ("compute.routers.delete",),
    "compute.routers.get": ("compute.routers.get",),
    "compute.routers.insert": ("compute.routers.create",),
    "compute.routers.patch": ("compute.routers.get", "compute.routers.update"),
    "compute.subnetworks.delete": ("compute.subnetworks.delete",),
    "compute.subnetworks.expandIpCidrRange": ("compute.subnetworks.expandIpCidrRange",),
    "compute.subnetworks.get": ("compute.subnetworks.get",),
    "compute.subnetworks.insert": ("compute.subnetworks.create",),
    "compute.subnetworks.patch": ("compute.subnetworks.get", "compute.subnetworks.update"),
    "compute.subnetworks.setPrivateIpGoogleAccess": ("compute.subnetworks.setPrivateIpGoogleAccess",),
    "container.projects.locations.clusters.create": ("container.clusters.create",),
    "container.projects.locations.clusters.delete": ("container.clusters.delete",),
    "container.projects.locations.clusters.get": ("container.clusters.get",),
    "container.projects.locations.clusters.nodePools.create": ("container.clusters.update",),
    "container.projects.locations.clusters.nodePools.delete": ("container.clusters.update",),
    "container.projects.locations.clusters.nodePools.get": ("container.clusters.get",),
    "container.projects.locations.clusters.nodePools.list": ("container.clusters.get",),
    "container.projects.locations.clusters.nodePools.setManagement": ("container.clusters.update",),
    "container.projects.locations.clusters.nodePools.setSize": ("container.clusters.update",),
    "container.projects.locations.clusters.nodePools.update": ("container.clusters.update",),
    "container.projects.locations.clusters.setLegacyAbac": ("container.clusters.update",),
    "container.projects.locations.clusters.setMaintenancePolicy": ("container.clusters.update",),
    "container.projects.locations.clusters.setResourceLabels": ("container.clusters.update",),
    "container.projects.locations.clusters.update": ("container.clusters.update",),
    "container.projects.locations.operations.get": ("container.operations.get",),
    "iam.projects.serviceAccounts.create": ("iam.serviceAccounts.create",),
    "iam.projects.serviceAccounts.delete": ("iam.serviceAccounts.delete",),
    "iam.projects.serviceAccounts.get": ("iam.serviceAccounts.get",),
    "iam.projects.serviceAccounts.getIamPolicy": ("iam.serviceAccounts.getIamPolicy",),
    "iam.projects.serviceAccounts.patch": ("iam.serviceAccounts.get", "iam.serviceAccounts.update"),
    "iam.projects.serviceAccounts.setIamPolicy": ("iam.serviceAccounts.setIamPolicy",),
    "serviceusage.operations.get": ("serviceusage.operations.get",),
    "serviceusage.services.batchEnable": ("serviceusage.services.enable",),
    "serviceusage.services.disable": ("serviceusage.services.disable",),
    "serviceusage.services.enable": ("serviceusage.services.enable",),
    "serviceusage.services.list": ("serviceusage.services.list",),
    "storage.anywhereCaches.list": ("storage.anywhereCaches.list",),
    "storage.buckets.delete": ("storage.buckets.delete",),
    "storage.buckets.get": ("storage.buckets.get", "storage.buckets.getIamPolicy"),
    "storage.buckets.getIamPolicy": ("storage.buckets.getIamPolicy",),
    "storage.buckets.insert": ("storage.buckets.create",),
    "storage.buckets.patch": ("storage.buckets.getIamPolicy", "storage.buckets.setIamPolicy", "storage.buckets.update"),
    "storage.buckets.setIamPolicy": ("storage.buckets.setIamPolicy",),
    "storage.objects.delete": ("storage.objects.delete",),
    "storage.objects.list": ("storage.objects.list",),
}
"""Method -> permissions that it needs according to Google's reference: gcp/map.json of iann0036/iam-dataset 2073fa52a
(2026-08).

An operation of Artifact Registry needs none. Reading and updating a bucket also need those of its policy, because of
the access lists.
"""

ROLES: Mapping[str, Sequence[str]] = {
    "roles/container.admin": (
        "container.clusters.create",
        "container.clusters.delete",
        "container.clusters.get",
        "container.clusters.update",
        "container.operations.get",
        "resourcemanager.projects.get",
    ),
    "roles/compute.networkAdmin": (
        "compute.firewalls.get",
        "compute.globalOperations.get",
        "compute.instanceGroupManagers.list",
        "compute.networks.create",
        "compute.networks.delete",
        "compute.networks.get",
        "compute.networks.update",
        "compute.networks.updatePolicy",
        "compute.regionOperations.get",
        "compute.routers.create",
        "compute.routers.delete",
        "compute.routers.get",
        "compute.routers.update",
        "compute.subnetworks.create",
        "compute.subnetworks.delete",
        "compute.subnetworks.expandIpCidrRange",
        "compute.subnetworks.get",
        "compute.subnetworks.setPrivateIpGoogleAccess",
        "compute.subnetworks.update",
        "resourcemanager.projects.get",
        "serviceusage.services.list",
    ),
    "roles/compute.securityAdmin": (
        "compute.firewalls.create",
        "compute.firewalls.delete",
        "compute.firewalls.get",
        "compute.firewalls.update",
        "compute.globalOperations.get",
        "compute.networks.get",
        "compute.networks.updatePolicy",
        "compute.regionOperations.get",
        "compute.routers.get",
        "compute.subnetworks.get",
        "resourcemanager.projects.get",
        "serviceusage.services.list",
    ),
    "roles/compute.instanceAdmin.v1": (
        "compute.firewalls.get",
        "compute.globalOperations.get",
        "compute.instanceGroupManagers.list",
        "compute.networks.get",
        "compute.regionOperations.get",
        "compute.resourcePolicies.create",
        "compute.resourcePolicies.delete",
        "compute.resourcePolicies.get",
        "compute.resourcePolicies.update",
        "compute.routers.get",
        "compute.subnetworks.get",
        "resourcemanager.projects.get",
        "serviceusage.services.list",
    ),
    "roles/compute.viewer": (
        "compute.firewalls.get",
        "compute.globalOperations.get",
        "compute.instanceGroupManagers.list",
        "compute.networks.get",
        "compute.regionOperations.get",
        "compute.resourcePolicies.get",
        "compute.routers.get",
        "compute.subnetworks.get",
        "resourcemanager.projects.get",
        "serviceusage.services.list",
    ),
    "roles/storage.admin": (
        "resourcemanager.projects.get",
        "storage.anywhereCaches.list",
        "storage.buckets.create",
        "storage.buckets.delete",
        "storage.buckets.get",
        "storage.buckets.getIamPolicy",
        "storage.buckets.setIamPolicy",
        "storage.buckets.update",
        "storage.objects.delete",
        "storage.objects.list",
    ),
    "roles/artifactregistry.admin": (
        "artifactregistry.repositories.create",
        "artifactregistry.repositories.delete",
        "artifactregistry.repositories.get",
        "artifactregistry.repositories.getIamPolicy",
        "artifactregistry.repositories.setIamPolicy",
        "artifactregistry.repositories.update",
        "resourcemanager.projects.get",
    ),
    "roles/iam.serviceAccountAdmin": (
        "iam.serviceAccounts.create",
        "iam.serviceAccounts.delete",
        "iam.serviceAccounts.get",
        "iam.serviceAccounts.getIamPolicy",
        "iam.serviceAccounts.setIamPolicy",
        "iam.serviceAccounts.update",
        "resourcemanager.projects.get",
    ),
    "roles/iam.serviceAccountUser": (
        "iam.serviceAccounts.actAs",
        "iam.serviceAccounts.get",
        "resourcemanager.projects.get",
    ),
    "roles/resourcemanager.projectIamAdmin": (
        "resourcemanager.projects.get",
        "resourcemanager.projects.getIamPolicy",
        "resourcemanager.projects.setIamPolicy",
    ),
    "roles/serviceusage.serviceUsageAdmin": (
        "serviceusage.operations.get",
        "serviceusage.services.disable",
        "serviceusage.services.enable",
        "serviceusage.services.list",
    ),
}
"""Role -> those of these permissions that it contains: gcp/roles of the same data set."""
