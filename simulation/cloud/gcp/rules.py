"""Rules of Google Cloud over a resource and those that exist: ranges of a network, members and identity pools."""

from __future__ import annotations

import re
from typing import Any

from simulation.cloud.kind import Errors, parse_network, rule, value_at
from simulation.cloud.state import CloudState, Properties

SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
CLUSTER = "gcp:container/cluster:Cluster"
ACCOUNT = "gcp:serviceaccount/account:Account"
_POOL_MEMBER = re.compile(r"serviceAccount:(?P<pool>[^\[\]\s]+\.svc\.id\.goog)\[[-a-z0-9]+/[-a-z0-9.]+\]")
_ACCOUNT_MEMBER = re.compile(r"serviceAccount:(?P<email>[^@\s]+@(?P<project>[^@\s]+)\.iam\.gserviceaccount\.com)")


def ranges_of(inputs: Properties) -> list[tuple[str, Any]]:
    """Return the property and the text of each range of a subnet, the primary and the secondary ones."""
    secondary = inputs.get("secondaryIpRanges") or []
    found = [("ipCidrRange", inputs.get("ipCidrRange"))]
    return found + [
        (f"secondaryIpRanges[{index}].ipCidrRange", each.get("ipCidrRange")) for index, each in enumerate(secondary)
    ]


@rule("https://cloud.google.com/vpc/docs/subnets#valid-ranges")
def ranges_of_network(inputs: Properties, state: CloudState) -> Errors:
    """Reject ranges that overlap with another subnet of the same network."""
    for other in state.of_type(SUBNETWORK):
        same = other.inputs.get("network") == inputs.get("network")
        if not same or (other.inputs.get("name"), other.inputs.get("region")) == (inputs["name"], inputs["region"]):
            continue
        for where, text in ranges_of(inputs):
            for _, other_text in ranges_of(other.inputs):
                new, existing = parse_network(text), parse_network(other_text)
                if new and existing and new.overlaps(existing):
                    yield where, f"{new} overlaps {existing} of subnet {other.inputs['name']}"


@rule("https://cloud.google.com/kubernetes-engine/docs/how-to/alias-ips")
def secondary_ranges_exist(inputs: Properties, state: CloudState) -> Errors:
    """Require that the pod and service ranges are secondary ranges of the cluster's subnet."""
    subnet = state.find(str(inputs.get("subnetwork")), SUBNETWORK)
    if subnet is None:
        return
    names = [each.get("rangeName") for each in subnet.inputs.get("secondaryIpRanges") or []]
    for key in ("clusterSecondaryRangeName", "servicesSecondaryRangeName"):
        name = value_at(inputs, f"ipAllocationPolicy.{key}")
        if isinstance(name, str) and name not in names:
            yield f"ipAllocationPolicy.{key}", f"{name!r} is not a secondary range of subnet {subnet.inputs['name']}"


@rule("https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity")
def workload_pool_exists(inputs: Properties, state: CloudState) -> Errors:
    """Require the workload identity pool of a member that is a Kubernetes service account.

    GKE creates the pool with a project's first cluster that uses Workload Identity.
    """
    member = inputs.get("member")
    match = _POOL_MEMBER.fullmatch(member) if isinstance(member, str) else None
    if match:
        pool, clusters = match["pool"], state.of_type(CLUSTER)
        pools = {(each.inputs.get("workloadIdentityConfig") or {}).get("workloadPool") for each in clusters}
        if pool not in pools:
            yield "member", f"identity pool {pool} does not exist: no cluster of the project has created it yet"


@rule("https://cloud.google.com/iam/docs/principal-identifiers")
def member_exists(inputs: Properties, state: CloudState) -> Errors:
    """Require that a member exists, if it is a service account of a project of this rehearsal."""
    member = inputs.get("member")
    match = _ACCOUNT_MEMBER.fullmatch(member) if isinstance(member, str) else None
    projects = {each.inputs.get("project") for each in state.of_type(ACCOUNT)}
    projects.add(inputs.get("project"))
    if match and match["project"] in projects and state.find(match["email"], ACCOUNT) is None:
        yield "member", f"service account {match['email']} does not exist"


MEMBER_RULES = (workload_pool_exists, member_exists)
