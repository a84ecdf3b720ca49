"""One cluster as the provider uses it: reading, writing and deleting objects of any kind."""

import json
from collections.abc import Mapping
from typing import Any

from setup.stand_ins.kubernetes.api import Api
from setup.stand_ins.kubernetes.discovery import Discovery
from setup.stand_ins.kubernetes.objects import GroupVersionKind, Object, kind_of, name_of, namespace_of

CREATE_FIELD_MANAGER = "pulumi-kubernetes"
"""Who creates an object; at the first update the fields go over to the manager that the state names."""


class Cluster:
    """Objects are given whole: apiVersion, kind, namespace and name say where they lie."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.discovery = Discovery(api)

    def get(self, manifest: Object, name: str = "") -> Object:
        """The live object. Raises ApiError 404, or NoSuchKind."""
        return self.api.request("GET", self._path(manifest, name or name_of(manifest)))

    def get_named(self, kind: GroupVersionKind, namespace: str, name: str) -> Object:
        """The live object of a kind. Raises as `get`."""
        return self.api.request("GET", self.discovery.find(kind).path(namespace, name))

    def list_kind(self, kind: GroupVersionKind, namespace: str, **query: str) -> list[Object]:
        """The live objects of a kind in a namespace."""
        items = self.api.request("GET", self.discovery.find(kind).path(namespace), query=query)["items"]
        # A list names the kind once, for all of its items.
        return [{"apiVersion": kind.api_version, "kind": kind.kind, **item} for item in items]

    def create(self, manifest: Object, *, dry_run: bool) -> Object:
        """Create the object; one that exists already is an ApiError, and so is a field that the kind does not have."""
        query = _query(CREATE_FIELD_MANAGER, dry_run)
        return self.api.request("POST", self._path(manifest, ""), query=query, body=manifest)

    def apply(self, manifest: Object, *, manager: str, force: bool, dry_run: bool) -> Object:
        """Apply server-side: the manager owns what the manifest says and gives up what it no longer says."""
        query = {**_query(manager, dry_run), "force": json.dumps(force)}
        return self._patch(manifest, query, manifest, "application/apply-patch+yaml")

    def replace(self, manifest: Object, *, manager: str, dry_run: bool) -> Object:
        """Put the object in the place of the live one whose resourceVersion it carries."""
        path = self._path(manifest, name_of(manifest))
        return self.api.request("PUT", path, query=_query(manager, dry_run), body=manifest)

    def json_patch(self, live: Object, operations: list[dict[str, Any]]) -> Object:
        """Change the live object by a list of operations (RFC 6902)."""
        return self._patch(live, {}, operations, "application/json-patch+json")

    def merge_patch(self, live: Object, patch: Object, *, manager: str, dry_run: bool, strategic: bool) -> Object:
        """Change the live object by a patch that says only what differs."""
        kind = "strategic-merge-patch" if strategic else "merge-patch"
        return self._patch(live, _query(manager, dry_run), patch, f"application/{kind}+json")

    def relinquish(self, manifest: Object, *, manager: str) -> None:
        """Give up every field that the manager owns; a field that nobody owns any more goes back to its default."""
        bare = {
            "apiVersion": manifest["apiVersion"],
            "kind": manifest["kind"],
            "metadata": {
                key: value for key, value in manifest["metadata"].items() if key in ("name", "namespace")
            },
        }  # fmt: skip
        self._patch(bare, {"fieldManager": manager}, bare, "application/apply-patch+yaml")

    def delete(self, manifest: Object, name: str, *, propagation: str) -> None:
        """Ask for the object's deletion; it may live on until its finalizers are done."""
        options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": propagation}
        self.api.request("DELETE", self._path(manifest, name), body=options)

    def _patch(self, manifest: Object, query: Mapping[str, str], body: Any, content_type: str) -> Object:
        path = self._path(manifest, name_of(manifest))
        return self.api.request("PATCH", path, query=query, body=body, content_type=content_type)

    def _path(self, manifest: Object, name: str) -> str:
        return self.discovery.find(kind_of(manifest)).path(namespace_of(manifest), name)


def _query(manager: str, dry_run: bool) -> dict[str, str]:
    query = {"fieldManager": manager, "fieldValidation": "Strict"}
    return {**query, "dryRun": "All"} if dry_run else query
