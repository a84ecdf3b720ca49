"""Objects of an existing cluster that a stack would take over. `make up` reports them before it creates anything.

pulumi-kubernetes creates an object by server-side apply, which also takes over an existing object of the same name.
`make down` would then delete that object.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kubernetes.client import ApiClient
from kubernetes.config import ConfigException
from kubernetes.dynamic import DynamicClient
from kubernetes.dynamic.exceptions import DynamicApiError, ForbiddenError, NotFoundError, ResourceNotFoundError
from pulumi import RunError
from urllib3.exceptions import HTTPError

from commands.environment import PROJECT
from commands.monitor.cluster import client_settings
from commands.review.recorded import Record, record_file
from commands.stack import PulumiFailed
from infra.cloud import Cloud
from infra.kubeconfig import kubeconfig_files
from infra.make_command import make_command
from settings.types import OPERATORS_NAMESPACE
from stack.config import StackConfig

Identity = tuple[str, str, str, str]
"""API version, kind, namespace and name of an object. The namespace is empty for a cluster-scoped object."""


def conflicts(stack: str, config: StackConfig, deployment: Mapping[str, Any]) -> list[str]:
    """Return one line for each existing object that the stack would create and that is not in the stack's state."""
    text = (PROJECT / f"Pulumi.{stack}.yaml").read_text(encoding="utf-8")
    try:
        records = record_file(text, config)
    except RunError:
        return []  # `pulumi up` reports the error.
    wanted = identities(records) - in_state(deployment)
    return [_conflict_line(each, stack) for each in sorted(existing(wanted, config.cloud))]


def identities(records: Iterable[Record]) -> set[Identity]:
    """Return the Kubernetes objects among the resources of a program, except objects with a generated name."""
    return {found for each in records if (found := _identity(each.type, each.inputs))}


def in_state(deployment: Mapping[str, Any]) -> set[Identity]:
    """Return the Kubernetes objects in a deployment of `pulumi stack export`."""
    resources = deployment.get("resources") or []
    return {found for each in resources if (found := _identity(each["type"], each.get("inputs") or {}))}


def _identity(type_: str, inputs: Mapping[str, Any]) -> Identity | None:
    metadata = inputs.get("metadata")
    if not type_.startswith("kubernetes:") or not isinstance(metadata, Mapping) or not metadata.get("name"):
        return None
    return str(inputs["apiVersion"]), str(inputs["kind"]), str(metadata.get("namespace") or ""), str(metadata["name"])


def existing(wanted: Iterable[Identity], cloud: Cloud) -> list[Identity]:
    """Return the objects that the cluster already has. Raises PulumiFailed if they cannot be read."""
    files = ":".join(map(str, kubeconfig_files(cloud.kubeconfig)))
    # Any, because this class has no type annotations.
    client: Any = DynamicClient
    try:
        settings = client_settings(files, cloud.context)
        with tempfile.TemporaryDirectory() as folder:
            cluster = client(ApiClient(settings), cache_file=str(Path(folder, "kinds")))
            return [each for each in wanted if _exists(cluster, *each)]
    except (ConfigException, DynamicApiError, HTTPError, OSError) as error:
        where = f"--kubeconfig {cloud.kubeconfig} " if cloud.kubeconfig else ""
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise PulumiFailed(
            f"context = {cloud.context}: the cluster's objects cannot be read: {reason}; nothing was "
            f"changed; run the command again when `kubectl {where}--context {cloud.context} version` shows a server"
        ) from error


def _exists(cluster: Any, api_version: str, kind: str, namespace: str, name: str) -> bool:
    try:
        resource = cluster.resources.get(api_version=api_version, kind=kind)
    except ResourceNotFoundError:
        return False
    try:
        resource.get(name=name, namespace=namespace or None)
    except NotFoundError:
        return False
    except ForbiddenError as error:
        where = f"namespace {namespace}" if namespace else "the whole cluster"
        group = f".{resource.group}" if resource.group else ""
        raise PulumiFailed(
            f"{kind} {name}: the permission to `get` {resource.name}{group} in {where} is missing, so a conflict with "
            "an existing object cannot be excluded; nothing was changed; ask the cluster's administrator to grant it"
        ) from error
    return True


def _conflict_line(found: Identity, stack: str) -> str:
    _version, kind, namespace, name = found
    where = f"{namespace}/{name}" if namespace else name
    up, down = make_command("up", STACK=stack), make_command("down", STACK=stack)
    return (
        f"{kind} {where} already exists in the cluster and does not belong to stack {stack}: {up} would take it over "
        f"and {down} would then delete it; {_remedy(kind, namespace, name)}delete it first"
    )


def _remedy(kind: str, namespace: str, name: str) -> str:
    """Return the setting that avoids the conflict, followed by "or"; empty if no setting does."""
    if kind == "CustomResourceDefinition" or OPERATORS_NAMESPACE in (namespace, name):
        return "`operators: present` uses the existing operators; or "
    if kind == "Namespace":
        return "`create_namespace: false` uses the existing namespace; or "
    return "write another `platform.namespace`, or " if namespace else ""
