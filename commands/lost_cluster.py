"""Removal from a stack's state of a local cluster whose data was deleted, so that `make up` can start a new one."""

from __future__ import annotations

import json

from commands.environment import PROJECT
from commands.stack import pulumi
from infra.local import lifecycle
from infra.local.settings import stack_cluster

CLUSTER_RESOURCE = "::local-processes"
"""End of the URN of a local cluster's resource (infra/local/cluster.py)."""


def remove_lost_cluster(stack: str) -> bool:
    """Destroy the resources in the state if the data of the stack's local cluster is gone. Return True if it was gone.

    The stack's other resources were in that cluster. The engine cannot replace the cluster: see
    LocalClusterProvider.diff.
    """
    cluster = stack_cluster(str(PROJECT), stack)
    if lifecycle.identity(cluster) is not None:
        return False
    resources = json.loads(pulumi("stack", "export", "--stack", stack, quiet=True))["deployment"].get("resources") or []
    known = [each.get("outputs") or {} for each in resources if each["urn"].endswith(CLUSTER_RESOURCE)]
    if not any(each.get("owner") == cluster.owner for each in known):
        return False
    print(
        f"stack {stack}: the data of its cluster is gone from {cluster.folder}; removing it from the state", flush=True
    )
    pulumi("destroy", "--yes", "--skip-preview", "--stack", stack)
    return True
