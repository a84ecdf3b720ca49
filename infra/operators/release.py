"""Release of an operator, and the Kubernetes objects that set-up generates from it and caches. No Pulumi."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from infra.local.settings import cache_folder
from infra.make_command import make_command

HEALTH_PORT = 8081
"""Default port of a controller-runtime manager's health checks."""


@dataclass(frozen=True, kw_only=True)
class Webhooks:
    """Admission webhooks of an operator. The operator itself creates and renews their certificate."""

    manifest: str
    """Path of the generated manifest in the module."""
    configurations: tuple[tuple[str, str], ...]
    """Kind and name of each configuration. The operator finds the configurations by these names.

    Empty if the operator needs no webhook. It then uses the Service and Secret of an operator that it requires.
    """
    service: str
    """Name of the Service in the certificate."""
    secret: str
    """Name of the Secret with the certificate."""
    last_path: str
    """Path of the webhook that the operator registers last. When it answers, all webhooks answer."""
    conversions: frozenset[str] = frozenset()
    """Plural names of the CustomResourceDefinitions into whose conversion webhook the operator writes its certificate.
    """
    others: frozenset[str] = frozenset()
    """Resources of other projects, such as pods, whose webhooks Trainyard installs. These webhooks select only objects
    with `label`. Trainyard omits the webhooks of further resources of other projects."""
    label: str | None = None
    """Label that selects objects of other projects."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """Release of an operator."""

    name: str
    """Name of the operator, of its folder in setup/go and of its objects."""
    module: str
    """Go module of the operator."""
    version: str
    """Version of the module. Its checksum is in setup/go/<name>/go.sum."""
    image: str
    """Image that the project publishes for this version."""
    definitions: tuple[str, ...]
    """Paths of the CustomResourceDefinitions in the module."""
    role: str
    """Path of the operator's ClusterRole in the module."""
    unneeded: frozenset[str] = frozenset()
    """Resources of that role that the operator does not use here, such as those of kinds that are not installed."""
    arguments: tuple[str, ...] = ()
    """Command line of the operator."""
    health_port: int = HEALTH_PORT
    """Port of its health check."""
    ready_path: str = "/readyz"
    """Path of the readiness check."""
    webhooks: Webhooks | None = None
    """Admission webhooks, or None."""
    files: tuple[tuple[str, str], ...] = ()
    """Path and content of each configuration file."""
    requires: frozenset[str] = frozenset()
    """Operators that this operator delegates work to."""
    follows: frozenset[str] = frozenset()
    """Operators that must start first if they are installed, because this operator looks for their kinds."""


FORMAT = 1
"""Version of the file format. Increase it when set-up writes different objects for an unchanged release."""


@dataclass(frozen=True, kw_only=True)
class OperatorObjects:
    """Kubernetes objects from an operator's release. Trainyard defines the operator's other objects."""

    definitions: list[dict[str, Any]]
    """CustomResourceDefinitions."""
    rules: list[dict[str, Any]]
    """Rules of the operator's ClusterRole."""
    webhooks: dict[str, list[dict[str, Any]]]
    """Name of a configuration -> its webhooks."""


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
        message = f"operator {release.name} {release.version} is not set up; {remedy}"
        raise ValueError(message) from error
