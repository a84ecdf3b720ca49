"""Google's discovery documents from google-api-python-client, and validation of inputs against their schemas."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

BOOLEAN_WORDS = ("TRUE", "FALSE")
"""The provider's spelling of a boolean that can also be absent."""


@functools.cache
def document(name: str) -> dict[str, Any]:
    """Return the document of an API and version, such as `compute.beta`."""
    spec = find_spec("googleapiclient")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    file = Path(spec.submodule_search_locations[0]) / "discovery_cache" / "documents" / f"{name}.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return found


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
    """Return the parts of a request body that its schema does not have."""
    return list(_problems(document(name), {"$ref": schema}, body, schema))


def _problems(found: Mapping[str, Any], schema: Mapping[str, Any], body: Any, path: str) -> Iterator[str]:
    if "$ref" in schema:
        schema = found["schemas"][schema["$ref"]]
    if isinstance(body, dict):
        named, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key, value in body.items():
            inner = named.get(key, others)
            if inner is None:
                yield f"{path}.{key}: there is no such field"
            else:
                yield from _problems(found, inner, value, f"{path}.{key}")
    elif isinstance(body, list):
        if schema.get("type") != "array":
            yield f"{path}: a list, not {schema.get('type')}"
        for value in body:
            yield from _problems(found, schema.get("items", {}), value, path)
    else:
        yield from _scalar_problems(schema, body, path)


def _scalar_problems(schema: Mapping[str, Any], value: Any, path: str) -> Iterator[str]:
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value} is not one of {', '.join(schema['enum'])}"
    kinds: Mapping[type, tuple[str, ...]] = {
        bool: ("boolean",),
        # JSON has 64-bit numbers as strings.
        float: ("integer", "number", "string"),
        int: ("integer", "number", "string"),
        str: ("string", "boolean") if value in BOOLEAN_WORDS else ("string",),
    }
    if schema.get("type") not in kinds[type(value)]:
        yield f"{path}: {value!r}, not {schema.get('type')}"
