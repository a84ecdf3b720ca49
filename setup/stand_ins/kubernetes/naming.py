"""Names that a program leaves to Pulumi, and the name of who manages an object's fields."""

import hashlib
import secrets

from pulumi.runtime.proto import provider_pb2

from setup.stand_ins.kubernetes.annotations import AUTONAMED, PATCH_FIELD_MANAGER, is_true
from setup.stand_ins.kubernetes.objects import Object, annotation, metadata_of, name_of, set_annotation, set_metadata
from setup.stand_ins.kubernetes.values import Unknown

FIELD_MANAGER_KEY = "__fieldManager"
CLIENT_SIDE_FIELD_MANAGER = "pulumi-kubernetes"


class NamingDisabled(Exception):
    """The project turned auto-naming off and the resource has no name."""


def unique_name(prefix: str, seed: bytes = b"") -> str:
    """The prefix and eight hexadecimal digits: the same for the same seed, which the engine draws once a resource."""
    return prefix + (hashlib.sha256(seed + prefix.encode()).hexdigest()[:8] if seed else secrets.token_hex(4))


def is_named(manifest: Object) -> bool:
    """Whether the program names the object, the name being known already or not."""
    return isinstance(metadata_of(manifest).get("name"), Unknown) or name_of(manifest) != ""


def is_generate_name(manifest: Object) -> bool:
    """Whether the program leaves the name to the API server."""
    return not is_named(manifest) and bool(metadata_of(manifest).get("generateName"))


def assign(
    manifest: Object, urn: str, seed: bytes, options: provider_pb2.CheckRequest.AutonamingOptions | None
) -> None:
    """Name a new object after its resource unless it has a name. Raises NamingDisabled."""
    if is_named(manifest) or is_generate_name(manifest):
        return
    name = unique_name(f"{urn.split('::')[-1]}-", seed)
    if options is not None:
        if options.mode == provider_pb2.CheckRequest.AutonamingOptions.DISABLE:
            raise NamingDisabled("autonaming is disabled, resource requires the .metadata.name field to be set")
        name = options.proposed_name or name
    set_metadata(manifest, "name", name)
    set_annotation(manifest, AUTONAMED, "true")


def adopt(manifest: Object, old: Object) -> None:
    """Keep the name that was given to an object which the program still leaves unnamed."""
    if not is_named(manifest) and is_true(old, AUTONAMED):
        set_metadata(manifest, "name", name_of(old))
        set_annotation(manifest, AUTONAMED, "true")


def field_manager(state: Object, inputs: Object, *, server_side: bool) -> str:
    """Who manages the object's fields: the annotation's choice, else the state's, else a new name."""
    if not server_side:
        return CLIENT_SIDE_FIELD_MANAGER
    return annotation(inputs, PATCH_FIELD_MANAGER) or state.get(FIELD_MANAGER_KEY) or unique_name("pulumi-kubernetes-")
