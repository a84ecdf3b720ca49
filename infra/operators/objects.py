"""The Kubernetes objects of an operator that its project generates, as set-up left them in the cache. No Pulumi."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infra.local.settings import cache_folder
from infra.make_command import make_command
from infra.operators.release import Release

FORMAT = 1
"""Raised when the file of an unchanged release is written in another way."""


@dataclass(frozen=True, kw_only=True)
class OperatorObjects:
    """What is taken from an operator's release; everything else about it is Trainyard's own."""

    definitions: list[dict[str, Any]]
    """Its CustomResourceDefinitions."""
    rules: list[dict[str, Any]]
    """Rules of the ClusterRole that it needs."""
    webhooks: dict[str, list[dict[str, Any]]]
    """The webhooks of each configuration, by its name."""


def objects_file(release: Release) -> Path:
    """Where set-up writes the objects of a release; another release, or another use of it, is another file."""
    content = json.dumps([FORMAT, asdict(release)], default=sorted)
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return cache_folder() / "operators" / release.name / release.version / f"{digest}.json"


def save_objects(release: Release, objects: OperatorObjects) -> None:
    """Write the objects; the file is whole as soon as it is there."""
    file = objects_file(release)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(asdict(objects)), encoding="utf-8")
    draft.replace(file)


def load_objects(release: Release) -> OperatorObjects:
    """Read the objects; ValueError with the remedy where set-up has not written them."""
    try:
        return OperatorObjects(**json.loads(objects_file(release).read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        remedy = f"run {make_command('up')}, or `python -m setup --operator={release.name}`"
        message = f"the operator {release.name} {release.version} is not set up: {remedy}"
        raise ValueError(message) from error
