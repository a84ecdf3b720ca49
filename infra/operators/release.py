"""The types of an operator's release: what of it is used, and how it runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

HEALTH_PORT = 8081
"""Where a controller-runtime manager answers its health checks unless told otherwise."""


@dataclass(frozen=True, kw_only=True)
class Webhooks:
    """An operator's admission webhooks; it makes and renews their certificate itself."""

    manifest: str
    """The generated manifest, in the module."""
    configurations: tuple[tuple[str, str], ...]
    """Kind and name of each configuration: the operator looks for them by these names.

    Empty if no webhook is installed: the operator then uses the Service and Secret of an operator that it requires."""
    service: str
    """Name of the Service that the certificate is made for."""
    secret: str
    """Name of the Secret that holds the certificate."""
    last_path: str
    """Path of the webhook that the operator registers last: when it answers, all do."""
    conversions: frozenset[str] = frozenset()
    """CustomResourceDefinitions, by plural name, whose conversion webhook must get the certificate before it starts."""
    others: frozenset[str] = frozenset()
    """Resources of others, such as pods, that webhooks are asked about where they carry `label`; no webhook for any
    further resource of others is installed."""
    label: str | None = None
    """That label: what does not carry it is not theirs."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """One operator at one version."""

    name: str
    """Name of the operator, of its folder below setup/go and of its objects."""
    module: str
    """Go module that it is released as."""
    version: str
    """Version of the module; its checksum is in setup/go/<name>/go.sum."""
    image: str
    """The image that the project publishes of this version."""
    definitions: tuple[str, ...]
    """Files of its CustomResourceDefinitions, in the module."""
    role: str
    """File of the ClusterRole that it needs, in the module."""
    unneeded: frozenset[str] = frozenset()
    """Resources in that role which it uses for kinds that are not installed."""
    arguments: tuple[str, ...] = ()
    """Command line of the operator."""
    health_port: int = HEALTH_PORT
    """Port of its health check."""
    ready_path: str = "/readyz"
    """Path of the health check that says when it works."""
    webhooks: Webhooks | None = None
    """Its admission webhooks; None where it has none."""
    files: tuple[tuple[str, str], ...] = ()
    """Path and content of configuration files that it reads."""
    requires: frozenset[str] = frozenset()
    """Operators that it hands work to."""
    follows: frozenset[str] = frozenset()
    """Operators after which it starts where they are installed: it looks for their kinds."""
