"""Ownership: tell a stack's cloud resources from others, whatever their names have in common.

The tests run in this order: a label that names a cluster; the resource's network, because each cluster has its own; its
name. Names are compared with the program's names for the platform's settings and with names that the cloud derives.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from commands.remains.listings import AMAZON, GOOGLE, Found, Listing
from commands.review.recording import Record, run
from infra.aws import cloud as aws
from infra.aws.config import EksConfig
from infra.gcp import cloud as gcp
from infra.gcp.config import GkeConfig
from infra.naming import CLUSTER_LABEL

NAME_KEYS = ("name", "bucket", "repositoryId", "member")
"""Inputs that name a resource in the cloud's listing."""
RANDOM = "-[0-9a-f]{7}"
"""Suffix that Pulumi adds to generated names: https://www.pulumi.com/docs/iac/concepts/resources/names/"""
NAMING_LABELS = frozenset(
    (
        *("goog-k8s-cluster-name", "eks:cluster-name", "aws:eks:cluster-name", "KubernetesCluster"),
        *("cluster.k8s.amazonaws.com/name", "elbv2.k8s.aws/cluster"),
    )
)
"""The clouds' own labels and tags whose value is a cluster's name."""
NAMING_KEYS = ("kubernetes.io/cluster/", "k8s.io/cluster-autoscaler/")
"""Prefixes of tags that end in a cluster's name."""
CUT = 16
"""Shortest length to which GKE cuts cluster and pool names in the names of their machines.

https://github.com/kubernetes/ingress-gce/pull/1623, https://github.com/vanvalenlab/kiosk-console/pull/259
"""


@dataclass(frozen=True, kw_only=True)
class Ours:
    """Labels and names that identify a stack's resources."""

    cluster: str
    """Name of its cluster."""
    label: str
    """Value of the label that says for which cluster a resource was created."""
    names: Mapping[str, Sequence[re.Pattern[str]]]
    """Kind -> names that only the stack's resources have."""
    shared_names: Mapping[str, Sequence[re.Pattern[str]]]
    """Kind -> names that other resources may have too, because they do not contain the cluster's name."""

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

    def asks_tags(self, listing: Listing, found: Found) -> bool:
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


def ours(platform: GkeConfig | EksConfig) -> Ours:
    """Return the labels and names of the resources that the program creates for these settings."""
    google = isinstance(platform, GkeConfig)

    def program() -> None:
        if isinstance(platform, GkeConfig):
            gcp.build_cloud(platform)
        else:
            aws.build_cloud(platform)

    names: dict[str, list[re.Pattern[str]]] = defaultdict(list)
    shared: dict[str, list[re.Pattern[str]]] = defaultdict(list)
    kinds = {type_: listing.kind for listing in (GOOGLE if google else AMAZON) for type_ in listing.types}
    records = run(program).records
    for record in (each for each in records if each.type in kinds):
        known = _known_name(record)
        # If a label could identify it, a user-chosen name proves nothing: others may have a repository `gcr.io` too.
        proof = "labels" not in record.inputs if known else record.name.startswith(f"{platform.name}-")
        to = names if proof else shared
        to[kinds[record.type]].append(re.compile(known or re.escape(record.name) + RANDOM))
    pools = [record.inputs["name"] for record in records if record.type == "gcp:container/nodePool:NodePool"]
    made = _of_gke(platform.name, pools) if google else _of_eks(platform.name)
    for kind, pattern in made.items():
        names[kind].append(re.compile(pattern))
    return Ours(cluster=platform.name, label=platform.cluster_label, names=names, shared_names=shared)


def _known_name(record: Record) -> str:
    """Return a pattern of the resource's name; empty if Pulumi generates the name."""
    inputs = record.inputs
    if "accountId" in inputs:
        return re.escape(f"{inputs['accountId']}@{inputs['project']}.iam.gserviceaccount.com")
    for key in NAME_KEYS:
        if inputs.get(key):
            member = rf"(deleted:)?{re.escape(inputs[key])}(\?uid=\d+)?"
            return member if key == "member" else re.escape(inputs[key])
    return ""


def _of_gke(cluster: str, pools: Iterable[str]) -> Mapping[str, str]:
    """Return kind -> pattern of the names that GKE generates for a cluster."""
    some = "|".join(_cut(pool) for pool in {*pools, "default-pool"})
    group = f"gke-{_cut(cluster)}-({some})-[0-9a-f]{{8}}"
    return {
        "instance group": f"{group}-grp",
        "instance": f"{group}-[a-z0-9]{{4}}",
        "disk": f"{group}-[a-z0-9]{{4}}",
        "firewall rule": f"gke-{_cut(cluster)}-[0-9a-f]{{8}}-[a-z]+",
    }


def _of_eks(cluster: str) -> Mapping[str, str]:
    """Return kind -> pattern of the names that EKS generates for a cluster."""
    name = re.escape(cluster)
    return {
        "security group": rf"eks-cluster-sg-{name}-\d+",
        "log group": f"/aws/(eks|containerinsights)/{name}/.*",
    }


def _cut(name: str) -> str:
    """Return a pattern of the name, whole or cut."""
    return f"({'|'.join(re.escape(name[:end]) for end in range(min(CUT, len(name)), len(name) + 1))})"
