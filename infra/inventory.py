"""Inventory of a cloud: listings of its resources, the rules of their ownership, and their ids."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from infra.naming import CLUSTER_LABEL

CLUSTER_NAME_LABELS = frozenset(
    (
        *("goog-k8s-cluster-name", "eks:cluster-name", "aws:eks:cluster-name", "KubernetesCluster"),
        *("cluster.k8s.amazonaws.com/name", "elbv2.k8s.aws/cluster"),
    )
)
"""Labels and tags that the clouds set, with a cluster's name as the value."""
CLUSTER_NAME_PREFIXES = ("kubernetes.io/cluster/", "k8s.io/cluster-autoscaler/")
"""Prefixes of tags that end in a cluster's name."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Kind of resource in a cloud, and the command that lists it."""

    kind: str
    """Name of the kind in Trainyard's messages."""
    command: tuple[str, ...]
    """Command that lists all resources of the kind. The caller adds options for the project or region, and for JSON.

    The placeholders are `{region}`, `{name}` (the cluster) and `{label}` (the label of the cluster's resources).
    """
    rows: str = ""
    """Key of the list in the output; empty if the output is the list."""
    name: str = "name"
    """Key of the name in a row. A row that is a string is the name."""
    id: str = ""
    """Key of the provider's id, if the id is not the name."""
    labels: str = "labels"
    """Key of the labels or tags."""
    tags: tuple[str, ...] = ()
    """Command that returns the tags of one resource, `{id}`, if the listing has none."""
    types: tuple[str, ...] = ()
    """Pulumi types of the kind. A simulated cloud lists the resources of these types."""


@dataclass(frozen=True, kw_only=True)
class CloudResource:
    """Resource that exists in a cloud."""

    kind: str
    name: str
    labels: Mapping[str, str]
    id: str = ""
    """The provider's id."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Text fields of the resource. Their keys begin with a lower-case letter, as in Pulumi's names."""

    @property
    def network(self) -> str:
        """Name or id of the network, empty if unknown."""
        facts = self.facts
        return (facts.get("network") or facts.get("vpcId") or facts.get("vPCId") or "").rpartition("/")[2]


def resources_in(listing: Listing, output: Any) -> Iterator[CloudResource]:
    """Yield the resources in the output of a listing."""
    rows = output.get(listing.rows, []) if listing.rows else output
    for row in rows or []:
        if isinstance(row, str):
            yield CloudResource(kind=listing.kind, name=row, labels={}, id=row)
            continue
        # AWS still lists a NAT gateway for an hour after its deletion.
        if row.get("State") == "deleted":
            continue
        name = str(row.get(listing.name) or row.get("id") or row)
        yield CloudResource(
            kind=listing.kind,
            name=name,
            labels=labels_from(row.get(listing.labels)),
            id=str(row.get(listing.id) or name),
            facts={f"{key[0].lower()}{key[1:]}": value for key, value in row.items() if isinstance(value, str)},
        )


def labels_from(labels: Any) -> dict[str, str]:
    """Return labels, or AWS's list of tags, as a dictionary."""
    if isinstance(labels, list):
        return {str(tag["Key"]): str(tag["Value"]) for tag in labels}
    return dict(labels or {})


Lister = Callable[[Listing], Iterable[CloudResource]]
"""Function that lists every resource of a kind."""
RunCommand = Callable[..., Any]
"""Function that runs a command and returns its JSON output."""


class PlannedResource(Protocol):
    """Resource that the program declares."""

    @property
    def type(self) -> str:
        """Pulumi's type of the resource."""

    @property
    def name(self) -> str:
        """Name of the resource in the program."""

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Inputs as plain values."""


API_DISABLED = ("SERVICE_DISABLED", "has not been used in project")
"""Words in the error of Google Cloud for an API that the project has not enabled.

https://github.com/googleapis/googleapis/blob/master/google/api/error_reason.proto and, for the message,
https://github.com/hashicorp/terraform/issues/29006
"""


def run_json(*command: str) -> Any:
    """Run a command and return the JSON that it prints.

    Raises CalledProcessError if the command fails, and FileNotFoundError if it is not installed.
    """
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(result.stdout or "null")


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """Labels and names that identify a stack's resources."""

    cluster: str
    label: str
    """Value of CLUSTER_LABEL on the stack's resources."""
    names: Mapping[str, Sequence[re.Pattern[str]]]
    """Patterns of names that only the stack's resources have, by kind."""
    shared_names: Mapping[str, Sequence[re.Pattern[str]]]
    """Patterns of names without the cluster's name, by kind. Other resources may have such names."""

    def has(self, resource: CloudResource, networks: Iterable[str]) -> bool:
        """Return True if the resource belongs to the stack; `networks` are the ids of the stack's networks."""
        label = resource.labels.get(CLUSTER_LABEL)
        if label is not None:
            return label == self.label
        if clusters := clusters_in(resource.labels):
            return self.cluster in clusters
        if resource.network:
            return resource.network in networks or _matches(self.names, "network", resource.network)
        return _matches(self.names, resource.kind, resource.name)

    def needs_tags(self, listing: Listing, resource: CloudResource) -> bool:
        """Return True if the resource's owner is known only from its tags. A query of the tags takes a second."""
        has_patterns = listing.kind in self.shared_names
        return bool(listing.tags) and (not has_patterns or _matches(self.shared_names, listing.kind, resource.name))


def _matches(names: Mapping[str, Sequence[re.Pattern[str]]], kind: str, name: str) -> bool:
    candidates = (name, name.rpartition("/")[2])
    return any(pattern.fullmatch(text) for pattern in names.get(kind, ()) for text in candidates)


def clusters_in(labels: Mapping[str, str]) -> set[str]:
    """Return the cluster names in the labels that the cloud itself sets."""
    values = {value for key, value in labels.items() if key in CLUSTER_NAME_LABELS}
    prefixes = CLUSTER_NAME_PREFIXES
    suffixes = {key.removeprefix(prefix) for key in labels for prefix in prefixes if key.startswith(prefix)}
    # The tag `k8s.io/cluster-autoscaler/enabled` names no cluster.
    return values | (suffixes - {"enabled"})


_COMPUTE = {
    "gcp:compute/network:Network": "global/networks",
    "gcp:compute/subnetwork:Subnetwork": "regions/{region}/subnetworks",
    "gcp:compute/firewall:Firewall": "global/firewalls",
    "gcp:compute/router:Router": "regions/{region}/routers",
    "gcp:compute/resourcePolicy:ResourcePolicy": "regions/{region}/resourcePolicies",
}
_GKE_CLUSTERS = "projects/{project}/locations/{location}/clusters"
_ACCOUNT = "{accountId}@{project}.iam.gserviceaccount.com"
_BUCKET_PARTS = (
    *("PublicAccessBlock", "OwnershipControls", "ServerSideEncryptionConfiguration", "Policy", "Versioning"),
    "LifecycleConfiguration",
)
ID_TEMPLATES: Mapping[str, str] = {
    **{type_: f"projects/{{project}}/{path}/{{name}}" for type_, path in _COMPUTE.items()},
    "gcp:compute/routerNat:RouterNat": "{project}/{region}/{router}/{name}",
    "gcp:container/cluster:Cluster": f"{_GKE_CLUSTERS}/{{name}}",
    "gcp:container/nodePool:NodePool": f"{_GKE_CLUSTERS}/{{cluster}}/nodePools/{{name}}",
    "gcp:serviceaccount/account:Account": f"projects/{{project}}/serviceAccounts/{_ACCOUNT}",
    "gcp:serviceaccount/iAMMember:IAMMember": "{serviceAccountId}/{role}/{member}",
    "gcp:projects/iAMMember:IAMMember": "{project}/{role}/{member}",
    "gcp:projects/service:Service": "{project}/{service}",
    "gcp:storage/bucket:Bucket": "{name}",
    "gcp:storage/bucketIAMMember:BucketIAMMember": "b/{bucket}/{role}/{member}",
    "gcp:artifactregistry/repository:Repository": "projects/{project}/locations/{location}/repositories/{repositoryId}",
    "gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": (
        "projects/{project}/locations/{location}/repositories/{repository}/{role}/{member}"
    ),
    "aws:eks/cluster:Cluster": "{name}",
    "aws:eks/nodeGroup:NodeGroup": "{clusterName}:{nodeGroupName}",
    "aws:eks/addon:Addon": "{clusterName}:{addonName}",
    "aws:eks/accessEntry:AccessEntry": "{clusterName}:{principalArn}",
    "aws:eks/accessPolicyAssociation:AccessPolicyAssociation": "{clusterName}#{principalArn}#{policyArn}",
    "aws:iam/role:Role": "{name}",
    "aws:iam/rolePolicy:RolePolicy": "{role}:{name}",
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": "{role}/{policyArn}",
    "aws:cloudwatch/logGroup:LogGroup": "{name}",
    "aws:s3/bucket:Bucket": "{bucket}",
    **{f"aws:s3/bucket{part}:Bucket{part}": "{bucket}" for part in _BUCKET_PARTS},
    "aws:ec2/placementGroup:PlacementGroup": "{name}",
    "aws:ecr/repository:Repository": "{name}",
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": "{repository}",
}
"""Template of each type's id, from the import section of the provider's page:
https://www.pulumi.com/registry/packages"""


def known_id(type_: str, inputs: Mapping[str, Any]) -> str | None:
    """Return the id that follows from a resource's inputs, or None if the cloud generates it."""
    if type_.startswith("kubernetes:"):
        metadata = inputs.get("metadata") or {}
        names = [metadata.get("namespace"), metadata.get("name")]
        return "/".join(name for name in names if name) if metadata.get("name") else None
    template = ID_TEMPLATES.get(type_)
    try:
        return template.format_map(inputs) if template else None
    except KeyError:
        return None
