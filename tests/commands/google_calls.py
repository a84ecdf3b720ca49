"""Google's API calls for each resource type of a GKE stack, each call's permissions, and each role's permissions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Calls:
    """Calls for one type of resource. An import makes the calls in `read`."""

    source: str
    """File and line of the provider's create function, below google-beta/services of terraform-provider-google-beta
    93c65b2d."""
    api: str
    """API and version."""
    create: Sequence[str]
    read: Sequence[str]
    update: Sequence[str] = ()
    """Calls of an update; empty if every change is a replacement."""
    delete: Sequence[str]
    extra_permissions: Sequence[str] = ()
    """Permissions that the calls above do not imply, such as to act as the nodes' service account."""

    @property
    def methods(self) -> set[str]:
        """Ids of all called methods, as in the API's discovery document."""
        service = self.api.partition(".")[0]
        return {f"{service}.{each}" for each in (*self.create, *self.read, *self.update, *self.delete)}


def compute_calls(source: str, resource: str, operations: str = "regionOperations") -> Calls:
    """Return the calls for an ordinary resource of Compute Engine. Each change starts an operation."""
    insert, patch, delete = ((f"{resource}.{each}", f"{operations}.get") for each in ("insert", "patch", "delete"))
    read = (f"{resource}.get",)
    return Calls(source=source, api="compute.beta", create=insert, read=read, update=patch, delete=delete)


def member_calls(source: str, api: str, resource: str) -> Calls:
    """Return the calls for a member of a resource's IAM policy."""
    change = (f"{resource}.getIamPolicy", f"{resource}.setIamPolicy")
    return Calls(source=source, api=api, create=change, read=change[:1], delete=change)


CALLS: Mapping[str, Calls] = {
    "gcp:artifactregistry/repository:Repository": Calls(
        source="artifactregistry/resource_artifact_registry_repository.go:949",
        api="artifactregistry.v1",
        create=("projects.locations.repositories.create", "projects.locations.operations.get"),
        read=("projects.locations.repositories.get",),
        update=("projects.locations.repositories.patch",),
        delete=("projects.locations.repositories.delete", "projects.locations.operations.get"),
    ),
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": member_calls(
        "artifactregistry/iam_artifact_registry_repository.go:189",
        "artifactregistry.v1",
        "projects.locations.repositories",
    ),
    "gcp:compute/firewall:Firewall": compute_calls(
        "compute/resource_compute_firewall.go:559", "firewalls", "globalOperations"
    ),
    "gcp:compute/network:Network": compute_calls(
        "compute/resource_compute_network.go:328", "networks", "globalOperations"
    ),
    "gcp:compute/resourcePolicy:ResourcePolicy": compute_calls(
        "compute/resource_compute_resource_policy.go:553", "resourcePolicies"
    ),
    "gcp:compute/router:Router": compute_calls("compute/resource_compute_router.go:377", "routers"),
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
        extra_permissions=("iam.serviceAccounts.actAs",),
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
        extra_permissions=("compute.instanceGroupManagers.list", "iam.serviceAccounts.actAs"),
    ),
    "gcp:projects/iAMMember:IAMMember": member_calls(
        "resourcemanager/iam_project.go:93", "cloudresourcemanager.v1", "projects"
    ),
    "gcp:projects/service:Service": Calls(
        source="resourcemanager/resource_google_project_service.go:217",
        api="serviceusage.v1beta1",
        create=("services.list", "services.batchEnable", "services.enable", "operations.get"),
        read=("services.list",),
        delete=("services.disable", "operations.get"),
        extra_permissions=("resourcemanager.projects.get",),
    ),
    "gcp:serviceaccount/account:Account": Calls(
        source="resourcemanager/resource_google_service_account.go:140",
        api="iam.v1",
        create=("projects.serviceAccounts.create", "projects.serviceAccounts.get"),
        read=("projects.serviceAccounts.get",),
        update=("projects.serviceAccounts.get", "projects.serviceAccounts.patch"),
        delete=("projects.serviceAccounts.delete",),
    ),
    "gcp:serviceaccount/iAMMember:IAMMember": member_calls(
        "resourcemanager/iam_service_account.go:85", "iam.v1", "projects.serviceAccounts"
    ),
    "gcp:storage/bucket:Bucket": Calls(
        source="storage/resource_storage_bucket.go:887",
        api="storage.v1",
        create=("buckets.insert", "buckets.get"),
        read=("buckets.get",),
        update=("buckets.patch", "buckets.get"),
        delete=("anywhereCaches.list", "objects.list", "objects.delete", "buckets.delete"),
    ),
    "gcp:storage/bucketIAMMember:BucketIAMMember": member_calls(
        "storage/iam_storage_bucket.go:106", "storage.v1", "buckets"
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
"""Method -> required permissions.

Source: Google's reference, in gcp/map.json of iann0036/iam-dataset 2073fa52a (2026-08). That file has no
`storage.anywhereCaches.list`. For `storage.objects.list`, that file also lists `storage.objects.getIamPolicy`.

Artifact Registry requires no permission to read an operation. For calls that read or update a bucket, the reference
also lists permissions for the bucket's IAM policy.
"""


def permissions(service: str, **verbs: str) -> tuple[str, ...]:
    """Return permissions of a service. Each keyword names a resource; its value is the verbs, separated by spaces."""
    return tuple(f"{service}.{resource}.{verb}" for resource, names in verbs.items() for verb in names.split())


GET_PROJECT = permissions("resourcemanager", projects="get")
LIST_SERVICES = (*GET_PROJECT, *permissions("serviceusage", services="list"))
READABLE_RESOURCES = ("firewalls", "globalOperations", "networks", "regionOperations", "routers", "subnetworks")
COMPUTE = (*LIST_SERVICES, *permissions("compute", **dict.fromkeys(READABLE_RESOURCES, "get")))
"""Permissions that all roles for Compute Engine include."""
ROLES: Mapping[str, Sequence[str]] = {
    "roles/container.admin": (
        *permissions("container", clusters="create delete get update", operations="get"),
        *GET_PROJECT,
    ),
    "roles/compute.networkAdmin": (
        *COMPUTE,
        *permissions("compute", instanceGroupManagers="list", routers="create delete update"),
        *permissions("compute", networks="create delete update updatePolicy"),
        *permissions("compute", subnetworks="create delete expandIpCidrRange setPrivateIpGoogleAccess update"),
    ),
    "roles/compute.securityAdmin": (
        *COMPUTE,
        *permissions("compute", firewalls="create delete update", networks="updatePolicy"),
    ),
    "roles/compute.instanceAdmin.v1": (
        *COMPUTE,
        *permissions("compute", instanceGroupManagers="list", resourcePolicies="create delete get update"),
    ),
    "roles/compute.viewer": (*COMPUTE, *permissions("compute", instanceGroupManagers="list", resourcePolicies="get")),
    "roles/storage.admin": (
        *permissions("storage", anywhereCaches="list", objects="delete list"),
        *permissions("storage", buckets="create delete get getIamPolicy setIamPolicy update"),
        *GET_PROJECT,
    ),
    "roles/artifactregistry.admin": (
        *permissions("artifactregistry", repositories="create delete get getIamPolicy setIamPolicy update"),
        *permissions("artifactregistry", repositories="uploadArtifacts"),
        *GET_PROJECT,
    ),
    "roles/artifactregistry.createOnPushWriter": permissions(
        "artifactregistry", repositories="createOnPush get uploadArtifacts"
    ),
    "roles/artifactregistry.writer": permissions("artifactregistry", repositories="get uploadArtifacts"),
    "roles/iam.serviceAccountAdmin": (
        *permissions("iam", serviceAccounts="create delete get getIamPolicy setIamPolicy update"),
        *GET_PROJECT,
    ),
    "roles/iam.serviceAccountUser": (*permissions("iam", serviceAccounts="actAs get"), *GET_PROJECT),
    "roles/resourcemanager.projectIamAdmin": permissions("resourcemanager", projects="get getIamPolicy setIamPolicy"),
    "roles/serviceusage.serviceUsageAdmin": permissions(
        "serviceusage", operations="get", services="disable enable list"
    ),
}
"""Role -> its permissions that the calls or an image push can require. Source: gcp/roles of iann0036/iam-dataset."""
