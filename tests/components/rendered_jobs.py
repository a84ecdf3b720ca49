"""Rendered jobs of every kind, and accessors for the tests."""

from __future__ import annotations

from typing import Any, get_args

from tests.golden.manifests import EVERY_KEY, ON_CLAIM, SCRIPT, manifests
from workloads.kinds import KINDS as ALL_KINDS
from workloads.objects import Placement
from workloads.spec import JobKind, JobSpec

KINDS: tuple[JobKind, ...] = get_args(JobKind)
TORCH_KINDS = [kind for kind in KINDS if ALL_KINDS[kind].runs_recipes]


def values_of(kind: JobKind) -> dict[str, Any]:
    """Return a job with most of the keys that a kind supports."""
    return EVERY_KEY if ALL_KINDS[kind].runs_recipes else SCRIPT


def spec(values: dict[str, Any] = EVERY_KEY, /, **changes: Any) -> JobSpec:
    """Return the spec of a job, by default of `EVERY_KEY`, with changes."""
    return JobSpec.model_validate({**values, **changes})


def main_object(
    values: dict[str, Any] = EVERY_KEY, placement: Placement = ON_CLAIM, /, **changes: Any
) -> dict[str, Any]:
    """Return the object of the job itself, such as a Job or a JobSet."""
    kinds = {"Job", *(kind.resource.kind for kind in ALL_KINDS.values() if kind.resource)}
    return next(each for each in manifests(spec(values, **changes), placement) if each["kind"] in kinds)


def job(**changes: Any) -> dict[str, Any]:
    """Return the Job of `EVERY_KEY` with changes."""
    return main_object(EVERY_KEY, ON_CLAIM, **changes)


def pod_templates(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return every pod template in a job's objects, by path."""
    found: dict[str, dict[str, Any]] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            if "containers" in value.get("spec", {}):
                found[path] = value
            for key, each in value.items():
                walk(each, f"{path}/{key}")
        elif isinstance(value, list):
            for index, each in enumerate(value):
                walk(each, f"{path}/{index}")

    for each in objects:
        walk(each, each["kind"])
    return found


def workers(values: dict[str, Any], placement: Placement = ON_CLAIM, **changes: Any) -> list[dict[str, Any]]:
    """Return the pod templates of a job's workers."""
    templates = pod_templates(manifests(spec(values, **changes), placement)).values()
    return [each for each in templates if each["metadata"]["labels"].get("app.kubernetes.io/component") == "worker"]
