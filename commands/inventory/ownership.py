"""Ownership of cloud resources: the names and labels of the resources that the program creates for a stack."""

from __future__ import annotations

import re
from collections import defaultdict

from commands.review.recording import Record, run
from infra.cloud import ProvisionedCloud
from infra.inventory import Ownership

NAME_KEYS = ("name", "bucket", "repositoryId", "member")
"""Inputs that name a resource in the cloud's listing."""
RANDOM = "-[0-9a-f]{7}"
"""Suffix that Pulumi adds to generated names: https://www.pulumi.com/docs/iac/concepts/resources/names/"""


def ownership(cloud: ProvisionedCloud) -> Ownership:
    """Return the labels and names of the resources that the program creates in a cloud."""
    names: dict[str, list[re.Pattern[str]]] = defaultdict(list)
    shared: dict[str, list[re.Pattern[str]]] = defaultdict(list)
    kinds = {type_: listing.kind for listing in cloud.listings for type_ in listing.types}
    records = run(cloud.declare).records
    for record in (each for each in records if each.type in kinds):
        known = _known_name(record)
        # If a label could identify it, a user-chosen name proves nothing: others may have a repository `gcr.io` too.
        proof = "labels" not in record.inputs if known else record.name.startswith(f"{cloud.cluster_name}-")
        to = names if proof else shared
        to[kinds[record.type]].append(re.compile(known or re.escape(record.name) + RANDOM))
    for kind, pattern in cloud.generated_names(records).items():
        names[kind].append(re.compile(pattern))
    return Ownership(cluster=cloud.cluster_name, label=cloud.label, names=names, shared_names=shared)


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
