"""Generated Kubernetes objects of an operator's release, cached by set-up. No Pulumi."""

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
"""Version of the file format. Increase it when the objects of an unchanged release are written differently."""


@dataclass(frozen=True, kw_only=True)
class OperatorObjects:
    """Objects from an operator's release. Trainyard defines all other objects of the operator."""

    definitions: list[dict[str, Any]]
    """CustomResourceDefinitions."""
    rules: list[dict[str, Any]]
    """Rules of the operator's ClusterRole."""
    webhooks: dict[str, list[dict[str, Any]]]
    """Webhooks of each configuration, by its name."""


def objects_file(release: Release) -> Path:
    """Return the path of a release's objects. The path contains a hash of the release and the file format."""
    content = json.dumps([FORMAT, asdict(release)], default=sorted)
    digest = hashlib.sha256(content.encode()).hexdigest()[:12]
    return cache_folder() / "operators" / release.name / release.version / f"{digest}.json"


def save_objects(release: Release, objects: OperatorObjects) -> None:
    """Write the objects atomically."""
    file = objects_file(release)
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = file.with_suffix(".new")
    draft.write_text(json.dumps(asdict(objects)), encoding="utf-8")
    draft.replace(file)


def load_objects(release: Release) -> OperatorObjects:
    """Read the objects. Raises ValueError with the remedy if set-up has not written them."""
    try:
        return OperatorObjects(**json.loads(objects_file(release).read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        remedy = f"run {make_command('up')}, or `python -m setup --operator={release.name}`"
        message = f"the operator {release.name} {release.version} is not set up: {remedy}"
        raise ValueError(message) from error
