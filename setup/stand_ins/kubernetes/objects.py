"""A Kubernetes object as a JSON dictionary: its identity, its annotations, and cutting it to another's shape."""

from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True)
class GroupVersionKind:
    """What an object is; the core group is the empty string."""

    group: str
    version: str
    kind: str

    @property
    def api_version(self) -> str:
        """As it stands in a manifest: `v1`, `apps/v1`."""
        return f"{self.group}/{self.version}" if self.group else self.version


def kind_of(manifest: Object) -> GroupVersionKind:
    """Read apiVersion and kind; Pulumi's `core/v1` is `v1`."""
    group, _, version = str(manifest.get("apiVersion") or "").rpartition("/")
    return GroupVersionKind("" if group == "core" else group, version, str(manifest.get("kind") or ""))


def kind_of_type(urn: str) -> GroupVersionKind:
    """Read what a resource is from its URN's type token, `kubernetes:batch/v1:Job`."""
    token = type_token(urn)
    _, group_version, kind = token.split(":")
    group, _, version = group_version.partition("/")
    if not version:
        raise ValueError(f"{token!r} names no API group and version: expected kubernetes:GROUP/VERSION:KIND")
    return GroupVersionKind("" if group == "core" else group, version, kind)


def type_token(urn: str) -> str:
    """The resource's own type, the last of the types in its URN."""
    return urn.split("::")[2].rpartition("$")[2]


def is_patch_resource(urn: str, kind: str) -> bool:
    """Whether the resource patches an object that another owns, such as NamespacePatch."""
    return type_token(urn).rpartition(":")[2] == f"{kind}Patch"


def is_crd(manifest: Object) -> bool:
    """Whether the object defines a custom resource."""
    return kind_of(manifest).group == "apiextensions.k8s.io" and manifest.get("kind") == "CustomResourceDefinition"


def is_core_kind(manifest: Object, kind: str) -> bool:
    """Whether the object is of this kind of the core group."""
    return manifest.get("kind") == kind and kind_of(manifest).group == ""


def metadata_of(manifest: Object) -> Object:
    """The metadata as a dictionary, empty where there is none or it is not known yet."""
    metadata = manifest.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def name_of(manifest: Object) -> str:
    """The name, or "" where there is none or it is not known yet."""
    name = metadata_of(manifest).get("name")
    return name if isinstance(name, str) else ""


def namespace_of(manifest: Object) -> str:
    """The namespace, or "" where there is none or it is not known yet."""
    namespace = metadata_of(manifest).get("namespace")
    return namespace if isinstance(namespace, str) else ""


def set_metadata(manifest: Object, key: str, value: str) -> None:
    """Set a metadata field, or remove it when the value is ""; nothing happens where metadata is not known yet."""
    metadata = manifest.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        return
    if value:
        metadata[key] = value
    else:
        metadata.pop(key, None)


def annotation(manifest: Object, key: str) -> str:
    """The annotation's value, or ""."""
    annotations = metadata_of(manifest).get("annotations")
    value = annotations.get(key) if isinstance(annotations, dict) else None
    return value if isinstance(value, str) else ""


def set_annotation(manifest: Object, key: str, value: str) -> None:
    """Set an annotation; nothing happens where the annotations are not known yet."""
    metadata = manifest.setdefault("metadata", {})
    if isinstance(metadata, dict) and isinstance(annotations := metadata.setdefault("annotations", {}), dict):
        annotations[key] = value


def pluck(manifest: Any, *path: str) -> Any:
    """The value at a path of keys, or None."""
    for key in path:
        manifest = manifest.get(key) if isinstance(manifest, dict) else None
    return manifest


def identifier(manifest: Object) -> str:
    """Pulumi's ID of an object: `namespace/name`, or `name` of a cluster-wide one."""
    namespace = namespace_of(manifest)
    return f"{namespace}/{name_of(manifest)}" if namespace else name_of(manifest)


def split_identifier(identity: str) -> tuple[str, str]:
    """The namespace ("" for a cluster-wide object) and the name that an ID names."""
    namespace, slash, name = identity.partition("/")
    return (namespace, name.split("/")[0]) if slash else ("", identity)


def prune(source: Object, shape: Object) -> Object:
    """The part of `source` that has the shape of `shape`: the live values of what a program has set."""
    pruned: Object = {}
    for key, value in source.items():
        if key not in shape:
            continue
        wanted = shape[key]
        if isinstance(value, dict) and isinstance(wanted, dict):
            pruned[key] = prune(value, wanted)
        elif isinstance(value, list) and isinstance(wanted, list):
            pruned[key] = _prune_list(value, wanted)
        else:
            pruned[key] = value
    return pruned


def _prune_list(source: list[Any], shape: list[Any]) -> list[Any]:
    """Element by element, as Kubernetes keeps the order in which a list was sent; a longer live list is cut."""
    if not source or not shape:
        return []
    if type(source[0]) is not type(shape[0]):
        return source
    pruned: list[Any] = []
    for value, wanted in zip(source, shape, strict=False):
        if isinstance(value, dict) and isinstance(wanted, dict):
            pruned.append(prune(value, wanted))
        elif isinstance(value, list) and isinstance(wanted, list):
            pruned.append(_prune_list(value, wanted))
        else:
            pruned.append(value)
    return pruned
