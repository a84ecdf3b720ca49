"""Pools on which jobs run now, read from a stack's cluster, so that a plan does not remove them. Not yet tested on a
cloud.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from kubernetes.client import ApiClient, ApiException, Configuration, CoreV1Api
from kubernetes.config import ConfigException, load_kube_config
from urllib3.exceptions import HTTPError

from commands.stack import kubeconfig_of, outputs, stack_exists
from infra.naming import JOB_LABEL, POOL_LABEL

TIMEOUT = (5.0, 30.0)
"""Seconds for a connection and for each answer."""


def jobs_by_pool(pods: Iterable[Mapping[str, Any]], nodes: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return pool -> jobs with a pending or running pod on one of its nodes, from the API server's own objects."""
    pools = {node["metadata"]["name"]: node["metadata"].get("labels", {}).get(POOL_LABEL) for node in nodes}
    found: dict[str, set[str]] = {}
    for pod in pods:
        pool = pools.get(pod["spec"].get("nodeName"))
        if pool and pod["status"].get("phase") in ("Pending", "Running"):
            found.setdefault(pool, set()).add(pod["metadata"]["labels"][JOB_LABEL])
    return {pool: sorted(jobs) for pool, jobs in sorted(found.items())}


def running(stack: str) -> dict[str, list[str]]:
    """Return pool -> running jobs of a stack. If its cluster does not answer, print a warning and return none. Raises
    PulumiFailed.
    """
    if not stack_exists(stack):
        return {}
    found = outputs(stack)
    if "kubeconfig_path" not in found:
        return {}
    settings = Configuration()
    load: Any = load_kube_config
    try:
        load(kubeconfig_of(stack, found), context=found.get("context"), client_configuration=settings)
        api: Any = CoreV1Api(ApiClient(settings))
        pods = api.list_pod_for_all_namespaces(
            label_selector=JOB_LABEL, _preload_content=False, _request_timeout=TIMEOUT
        )
        nodes = api.list_node(_preload_content=False, _request_timeout=TIMEOUT)
        return jobs_by_pool(json.loads(pods.data)["items"], json.loads(nodes.data)["items"])
    except (ConfigException, ApiException, HTTPError, OSError) as error:
        why = "its cluster does not say which jobs run, so that no pool is guarded"
        print(f"stack {stack}: {why}: {error}", file=sys.stderr)
        return {}
