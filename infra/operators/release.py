"""Types of an operator's release: the parts that Trainyard uses, and how the operator runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

HEALTH_PORT = 8081
"""Default port of a controller-runtime manager's health checks."""


@dataclass(frozen=True, kw_only=True)
class Webhooks:
    """Admission webhooks of an operator, which creates and renews their certificate itself."""

    manifest: str
    """Path of the generated manifest in the module."""
    configurations: tuple[tuple[str, str], ...]
    """Kind and name of each configuration. The operator looks for them by these names.

    Empty if no webhook is installed. The operator then uses the Service and Secret of an operator that it requires.
    """
    service: str
    """Name of the Service in the certificate."""
    secret: str
    """Name of the Secret with the certificate."""
    last_path: str
    """Path of the webhook that the operator registers last. When it answers, all do."""
    conversions: frozenset[str] = frozenset()
    """Plural names of the CustomResourceDefinitions whose conversion webhook needs the certificate before the pod
    starts."""
    others: frozenset[str] = frozenset()
    """Resources of other projects, such as pods. Their webhooks are installed and select only objects with `label`.
    Webhooks for further resources of other projects are not installed."""
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
    """Resources of that role that the operator uses only for kinds that are not installed."""
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
