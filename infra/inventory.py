"""Inventory of a cloud: resource kinds, their ids and listing commands, and the ownership rules. No Pulumi."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from infra.naming import CLUSTER_LABEL

NAMING_LABELS = frozenset(
    (
        *("goog-k8s-cluster-name", "eks:cluster-name", "aws:eks:cluster-name", "KubernetesCluster"),
        *("cluster.k8s.amazonaws.com/name", "elbv2.k8s.aws/cluster"),
    )
)
"""The clouds' own labels and tags whose value is a cluster's name."""
NAMING_KEYS = ("kubernetes.io/cluster/", "k8s.io/cluster-autoscaler/")
"""Prefixes of tags that end in a cluster's name."""


@dataclass(frozen=True, kw_only=True)
class Listing:
    """Kind of resource in a cloud."""

    kind: str
    """Name of the kind."""
    words: tuple[str, ...]
    """Command that lists all resources of the kind as JSON, without project.

    The placeholders are `{region}`, `{name}` (the cluster) and `{label}` (the label of the cluster's resources).
    """
    rows: str = ""
    """Key of the list in the answer; empty if the answer is the list."""
    name: str = "name"
    """Key of the name in a row. A row that is a string is itself the name."""
    id: str = ""
    """Key of the provider's id, if it is not the name."""
    labels: str = "labels"
    """Key of the labels or tags."""
    tags: tuple[str, ...] = ()
    """Command that returns the tags of one resource, `{id}`, if the listing has none."""
    types: tuple[str, ...] = ()
    """Pulumi types of the kind, by which a simulated cloud lists it."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """A resource that exists."""

    kind: str
    name: str
    labels: Mapping[str, str]
    """Labels or tags."""
    id: str = ""
    """The provider's id."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """Other string fields, under Pulumi's names."""

    @property
    def network(self) -> str:
        """Name or id of the network, empty if unknown."""
        facts = self.facts
        return (facts.get("network") or facts.get("vpcId") or facts.get("vPCId") or "").rpartition("/")[2]


def read(listing: Listing, answer: Any) -> Iterator[Found]:
    """Yield the resources in a cloud's answer."""
    rows = answer.get(listing.rows, []) if listing.rows else answer
    for row in rows or []:
        if isinstance(row, str):
            yield Found(kind=listing.kind, name=row, labels={}, id=row)
            continue
        # AWS lists a deleted NAT gateway for another hour.
        if row.get("State") == "deleted":
            continue
        name = str(row.get(listing.name) or row.get("id") or row)
        yield Found(
            kind=listing.kind,
            name=name,
            labels=labels_of(row.get(listing.labels)),
            id=str(row.get(listing.id) or name),
            facts={f"{key[0].lower()}{key[1:]}": value for key, value in row.items() if isinstance(value, str)},
        )


def labels_of(found: Any) -> dict[str, str]:
    """Return labels, or tags as AWS lists them."""
    if isinstance(found, list):
        return {str(each["Key"]): str(each["Value"]) for each in found}
    return dict(found or {})


Lister = Callable[[Listing], Iterable[Found]]
"""Function that lists every resource of a kind."""
Ask = Callable[..., Any]
"""Function that runs a command and returns its JSON output."""


class PlannedResource(Protocol):
    """A resource that the program declares."""

    @property
    def type(self) -> str:
        """Pulumi's type of the resource."""

    @property
    def name(self) -> str:
        """Name of the resource in the program."""

    @property
    def inputs(self) -> Mapping[str, Any]:
        """Inputs as plain values."""


def json_of(*words: str) -> Any:
    """Run a command and return the JSON that it prints.

    Raises CalledProcessError, and FileNotFoundError if it is not installed.
    """
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return json.loads(done.stdout or "null")


@dataclass(frozen=True, kw_only=True)
class Ownership:
    """Labels and names that identify a stack's resources."""

    cluster: str
    """Name of the cluster."""
    label: str
    """Value of the cluster label on the stack's resources."""
    names: Mapping[str, Sequence[re.Pattern[str]]]
    """Patterns of names that only the stack's resources have, by kind."""
    shared_names: Mapping[str, Sequence[re.Pattern[str]]]
    """Patterns of names without the cluster's name, by kind. Other resources may have such names."""

    def has(self, found: Found, networks: Iterable[str]) -> bool:
        """Return True if the stack created the resource; `networks` are the ids of the stack's networks."""
        label = found.labels.get(CLUSTER_LABEL)
        if label is not None:
            return label == self.label
        if clusters := clusters_named(found.labels):
            return self.cluster in clusters
        if found.network:
            return found.network in networks or _among(self.names, "network", found.network)
        return _among(self.names, found.kind, found.name)

    def needs_tags(self, listing: Listing, found: Found) -> bool:
        """Return True if the resource's tags should be queried. Each query takes a second."""
        made = listing.kind in self.shared_names
        return bool(listing.tags) and (not made or _among(self.shared_names, listing.kind, found.name))


def _among(names: Mapping[str, Sequence[re.Pattern[str]]], kind: str, name: str) -> bool:
    return any(pattern.fullmatch(each) for pattern in names.get(kind, ()) for each in (name, name.rpartition("/")[2]))


def clusters_named(labels: Mapping[str, str]) -> set[str]:
    """Return the clusters that a cloud's own labels name."""
    values = {value for key, value in labels.items() if key in NAMING_LABELS}
    keys = {key.removeprefix(each) for key in labels for each in NAMING_KEYS if key.startswith(each)}
    return values | (keys - {"enabled"})


_COMPUTE = {
    "gcp:compute/network:Network": "global/networks",
    "gcp:compute/subnetwork:Subnetwork": "regions/{region}/subnetworks",
    "gcp:compute/firewall:Firewall": "global/firewalls",
    "gcp:compute/router:Router": "regions/{region}/routers",
    "gcp:compute/resourcePolicy:ResourcePolicy": "regions/{region}/resourcePolicies",
}
_IN_CLUSTER = "projects/{project}/locations/{location}/clusters"
_ACCOUNT = "{accountId}@{project}.iam.gserviceaccount.com"
_BUCKET_PARTS = (
    *("PublicAccessBlock", "OwnershipControls", "ServerSideEncryptionConfiguration", "Policy", "Versioning"),
    "LifecycleConfiguration",
)
TEMPLATES: Mapping[str, str] = {
    **{type_: f"projects/{{project}}/{path}/{{name}}" for type_, path in _COMPUTE.items()},
    "gcp:compute/routerNat:RouterNat": "{project}/{region}/{router}/{name}",
    "gcp:container/cluster:Cluster": f"{_IN_CLUSTER}/{{name}}",
    "gcp:container/nodePool:NodePool": f"{_IN_CLUSTER}/{{cluster}}/nodePools/{{name}}",
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
    "aws:kms/alias:Alias": "{name}",
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
    template = TEMPLATES.get(type_)
    try:
        return template.format_map(inputs) if template else None
    except KeyError:
        return None
