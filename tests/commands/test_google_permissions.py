"""Roles that `python -m commands.workflows permissions` prints for GKE permit each call of Google's provider.

No printed role is superfluous.
"""

from __future__ import annotations

import pytest

from commands.review.recorded import run
from infra.gcp.inventory import ROLES as ROLES_BY_TYPE
from infra.gcp.inventory import VIEWER_ROLES
from infra.gcp.platform import build_components
from tests.commands.google_calls import CALLS, PERMISSIONS, ROLES
from tests.commands.platforms import gke, permissions_of
from tests.components.google_requests import methods

STACKS = {
    "tutorial": gke("train"),
    "fabric": gke("train", pools=[{"name": "a3", "nodes": 2, "machine_type": "a3-highgpu-8g"}]),
    "ironwood": gke("train", zone="us-central1-c", pools=[{"name": "tpus", "accelerator": "v7x", "topology": "2x4x4"}]),
    "gcr.io": gke("train", registry={"host": "gcr.io"}),
    "shared repository": gke("train", registry={"repository": "shared"}),
    "image elsewhere": gke("train", image={"prebuilt": f"example.com/trainer@sha256:{'1' * 64}"}),
}


def required_permissions(types: set[str]) -> dict[str, set[str]]:
    """Return the permissions to create, update, delete and import resources, by type."""
    return {
        kind: {each for method in CALLS[kind].methods for each in PERMISSIONS[method]}
        | set(CALLS[kind].extra_permissions)
        for kind in types
    }


def types_of(name: str) -> set[str]:
    """Return the types of the Google Cloud resources in one of STACKS."""
    records = run(lambda: build_components(STACKS[name])).records
    return {each.type for each in records if each.type.startswith("gcp:")}


def test_calls_and_roles_cover_the_same_resource_types() -> None:
    assert set(CALLS) == set(ROLES_BY_TYPE)


@pytest.mark.parametrize("kind", sorted(CALLS))
def test_calls_of_a_type_are_methods_of_its_api(kind: str) -> None:
    assert CALLS[kind].methods - methods(CALLS[kind].api) == set()


@pytest.mark.parametrize("name", STACKS)
def test_printed_roles_of_a_stack_permit_every_call(name: str) -> None:
    granted = {each["role"] for each in permissions_of(STACKS[name])["bindings"]}
    allowed = {permission for role in granted for permission in ROLES.get(role, ())}
    assert {
        kind: missing
        for kind, required in required_permissions(types_of(name)).items()
        if (missing := required - allowed)
    } == {}


def push_permissions(name: str) -> set[str]:
    """Return the permissions to push images of one of STACKS.

    https://cloud.google.com/artifact-registry/docs/transition/setup-gcr-repo
    """
    config = STACKS[name]
    if config.image.prebuilt:
        return set()
    verbs = ["uploadArtifacts", *(["createOnPush"] if config.registry_host == "gcr.io" else [])]
    return {f"artifactregistry.repositories.{verb}" for verb in verbs}


@pytest.mark.parametrize("name", STACKS)
def test_printed_roles_of_a_stack_permit_image_pushes(name: str) -> None:
    granted = {each["role"] for each in permissions_of(STACKS[name])["bindings"]}
    assert push_permissions(name) - {permission for role in granted for permission in ROLES.get(role, ())} == set()


@pytest.mark.parametrize("name", STACKS)
def test_printed_roles_of_a_stack_are_all_needed(name: str) -> None:
    granted = {each["role"] for each in permissions_of(STACKS[name])["bindings"]} - set(VIEWER_ROLES.values())
    wanted = {each for required in required_permissions(types_of(name)).values() for each in required}
    wanted |= push_permissions(name)
    for role in granted:
        others = {permission for other in granted - {role} for permission in ROLES[other]}
        assert wanted & set(ROLES[role]) - others, f"{role} adds nothing"


@pytest.mark.parametrize("kind", sorted(CALLS))
def test_roles_of_a_type_permit_its_calls(kind: str) -> None:
    allowed = {permission for role in ROLES_BY_TYPE[kind] for permission in ROLES[role]}
    # Only the role for services lacks the permission to read the project.
    assert required_permissions({kind})[kind] - allowed - {"resourcemanager.projects.get"} == set()
