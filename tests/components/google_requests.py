"""Requests that the provider sends to Google to create GKE resources, and Google's schemas of these requests.

Source of renamed, moved and omitted fields: the expand functions of google-beta/services in
terraform-provider-google-beta 93c65b2d. Source of the schemas: the discovery documents in google-api-python-client.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SCHEMAS: Mapping[str, tuple[str, str]] = {
    "gcp:artifactregistry/repository:Repository": ("artifactregistry.v1", "Repository"),
    "gcp:compute/firewall:Firewall": ("compute.beta", "Firewall"),
    "gcp:compute/network:Network": ("compute.beta", "Network"),
    "gcp:compute/resourcePolicy:ResourcePolicy": ("compute.beta", "ResourcePolicy"),
    "gcp:compute/router:Router": ("compute.beta", "Router"),
    "gcp:compute/routerNat:RouterNat": ("compute.beta", "RouterNat"),
    "gcp:compute/subnetwork:Subnetwork": ("compute.beta", "Subnetwork"),
    "gcp:container/cluster:Cluster": ("container.v1beta1", "Cluster"),
    "gcp:container/nodePool:NodePool": ("container.v1beta1", "NodePool"),
    "gcp:storage/bucket:Bucket": ("storage.v1", "Bucket"),
}
"""Pulumi's type -> API with version, and schema of the request that creates the resource."""

OMITTED_FIELDS: Mapping[str, tuple[str, ...]] = {
    "gcp:artifactregistry/repository:Repository": ("location", "repositoryId"),
    "gcp:compute/routerNat:RouterNat": ("region", "router"),
    "gcp:container/cluster:Cluster": ("deletionProtection", "networkingMode", "removeDefaultNodePool"),
    "gcp:container/nodePool:NodePool": ("cluster", "location"),
    "gcp:storage/bucket:Bucket": ("forceDestroy",),
}
"""Pulumi's type -> inputs that are in the URL, or that only the provider uses."""

RENAMED_FIELDS: Mapping[str, Mapping[str, str]] = {
    "gcp:compute/firewall:Firewall": {"allows": "allowed", "allows.protocol": "allows.IPProtocol"},
    "gcp:compute/network:Network": {"routingMode": "routingConfig.routingMode"},
    "gcp:container/cluster:Cluster": {
        "datapathProvider": "networkConfig.datapathProvider",
        "enableLegacyAbac": "legacyAbac.enabled",
        "enableMultiNetworking": "networkConfig.enableMultiNetworking",
        "enableShieldedNodes": "shieldedNodes.enabled",
        "loggingConfig.enableComponents": "loggingConfig.componentConfig.enableComponents",
        "maintenancePolicy.recurringWindow.startTime": "maintenancePolicy.window.recurringWindow.window.startTime",
        "maintenancePolicy.recurringWindow.endTime": "maintenancePolicy.window.recurringWindow.window.endTime",
        "maintenancePolicy.recurringWindow.recurrence": "maintenancePolicy.window.recurringWindow.recurrence",
        "minMasterVersion": "initialClusterVersion",
        "monitoringConfig.enableComponents": "monitoringConfig.componentConfig.enableComponents",
        "monitoringConfig.managedPrometheus": "monitoringConfig.managedPrometheusConfig",
        "nodeLocations": "locations",
    },
    "gcp:container/nodePool:NodePool": {
        "maxPodsPerNode": "maxPodsConstraint.maxPodsPerNode",
        "nodeConfig.guestAccelerators": "nodeConfig.accelerators",
        "nodeConfig.guestAccelerators.count": "nodeConfig.guestAccelerators.acceleratorCount",
        "nodeConfig.guestAccelerators.type": "nodeConfig.guestAccelerators.acceleratorType",
        "nodeConfig": "config",
        "nodeCount": "initialNodeCount",
        "nodeLocations": "locations",
    },
    "gcp:storage/bucket:Bucket": {
        "lifecycleRules": "lifecycle.rule",
        "lifecycleRules.condition.matchesPrefixes": "lifecycleRules.condition.matchesPrefix",
        "publicAccessPrevention": "iamConfiguration.publicAccessPrevention",
        "uniformBucketLevelAccess": "iamConfiguration.uniformBucketLevelAccess.enabled",
    },
}
"""Pulumi's type -> path of an input -> path of the field. `body` moves the innermost fields first."""


def body(kind: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of the provider's request that creates a resource."""
    found = {key: value for key, value in inputs.items() if key not in ("project", *OMITTED_FIELDS.get(kind, ()))}
    if kind.endswith("Repository"):
        found["cleanupPolicies"] = {each["id"]: each for each in found.get("cleanupPolicies", [])}
    moves = RENAMED_FIELDS.get(kind, {})
    for old in sorted(moves, key=lambda path: -path.count(".")):
        found = _move(found, old.split("."), moves[old].split("."))
    if kind.endswith("Cluster"):
        exclusions = found["maintenancePolicy"].pop("maintenanceExclusions", [])
        found["maintenancePolicy"]["window"]["maintenanceExclusions"] = {
            each["exclusionName"]: {
                "startTime": each["startTime"],
                "maintenanceExclusionOptions": each["exclusionOptions"],
            }
            for each in exclusions
        }
    return found


def _move(value: Any, old: list[str], new: list[str]) -> Any:
    """Return a copy with a field moved from path `old` to path `new`. Move the field in each element of a list."""
    if isinstance(value, list):
        return [_move(each, old, new) for each in value]
    if not isinstance(value, dict) or old[0] not in value:
        return value
    found = dict(value)
    if len(old) > 1 and len(new) > 1 and old[0] == new[0]:
        found[old[0]] = _move(found[old[0]], old[1:], new[1:])
        return found
    found, moved = _pop(found, old)
    return _insert(found, new, moved) if moved is not None else value


def _pop(value: dict[str, Any], path: list[str]) -> tuple[dict[str, Any], Any]:
    """Return a copy without the field at a path and without emptied parents, and the field's value."""
    found = dict(value)
    if len(path) == 1:
        return found, found.pop(path[0], None)
    inner, popped = _pop(found[path[0]], path[1:])
    found[path[0]] = inner
    if not inner:
        del found[path[0]]
    return found, popped


def _insert(value: dict[str, Any], path: list[str], inserted: Any) -> dict[str, Any]:
    """Return a copy with a value at a path."""
    if len(path) == 1:
        return {**value, path[0]: inserted}
    return {**value, path[0]: _insert(value.get(path[0], {}), path[1:], inserted)}


BOOLEAN_WORDS = ("TRUE", "FALSE")
"""The provider's spelling of a boolean that can also be absent."""


def _folder() -> Path:
    """Return the folder of the discovery documents."""
    spec = find_spec("googleapiclient")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "discovery_cache" / "documents"


@functools.cache
def document(name: str) -> dict[str, Any]:
    """Return the document of an API and version, such as `compute.beta`."""
    found: dict[str, Any] = json.loads((_folder() / f"{name}.json").read_text(encoding="utf-8"))
    return found


SERVICES_WITHOUT_DOCUMENT = frozenset({"containerfilesystem.googleapis.com"})
"""Services without a discovery document, such as the Container File System API:
https://docs.cloud.google.com/kubernetes-engine/docs/how-to/image-streaming#requirements"""


def services() -> frozenset[str]:
    """Return the names of known services, such as `compute.googleapis.com`."""
    documents = (file.name.partition(".")[0] for file in _folder().glob("*.json"))
    return SERVICES_WITHOUT_DOCUMENT.union(f"{name}.googleapis.com" for name in documents)


@functools.cache
def methods(name: str) -> frozenset[str]:
    """Return the ids of an API's methods, such as `compute.networks.insert`."""
    return frozenset(_methods(document(name)))


def _methods(resource: Mapping[str, Any]) -> Iterator[str]:
    for method in resource.get("methods", {}).values():
        yield method["id"]
    for inner in resource.get("resources", {}).values():
        yield from _methods(inner)


def problems(name: str, schema: str, body: Any) -> list[str]:
    """Return the problems of a request body: unknown fields, wrong types and values outside of an enumeration."""
    return list(_problems(document(name), {"$ref": schema}, body, schema))


def _problems(api: Mapping[str, Any], schema: Mapping[str, Any], body: Any, path: str) -> Iterator[str]:
    if "$ref" in schema:
        schema = api["schemas"][schema["$ref"]]
    if isinstance(body, dict):
        named, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key, value in body.items():
            inner = named.get(key, others)
            if inner is None:
                yield f"{path}.{key}: unknown field"
            else:
                yield from _problems(api, inner, value, f"{path}.{key}")
    elif isinstance(body, list):
        if schema.get("type") != "array":
            yield f"{path}: is a list; must be of type {schema.get('type')}"
        for value in body:
            yield from _problems(api, schema.get("items", {}), value, path)
    else:
        yield from _scalar_problems(schema, body, path)


def _scalar_problems(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value} is not one of {', '.join(schema['enum'])}"
    kinds: Mapping[type, tuple[str, ...]] = {
        bool: ("boolean",),
        # JSON represents 64-bit numbers as strings.
        float: ("integer", "number", "string"),
        int: ("integer", "number", "string"),
        str: ("string", "boolean") if value in BOOLEAN_WORDS else ("string",),
    }
    if schema.get("type") not in kinds[type(value)]:
        yield f"{path}: is {value!r}; must be of type {schema.get('type')}"
