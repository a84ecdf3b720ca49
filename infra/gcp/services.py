"""ProjectServices: the APIs of Google Cloud that a platform needs, enabled in its project."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

SERVICES = ("artifactregistry", "compute", "container", "iam", "logging", "monitoring", "storage")
"""APIs, without their `.googleapis.com`."""


@dataclass(frozen=True, kw_only=True)
class ProjectServicesArgs:
    """Where the APIs are enabled."""

    project: str
    """Id of the project."""


class ProjectServices(pulumi.ComponentResource):
    """Enables the APIs; they stay enabled when the stack goes, for others in the project may use them."""

    project: pulumi.Output[str]
    """Id of the project, known when every API is enabled: what needs them takes the project from here."""

    def __init__(self, name: str, args: ProjectServicesArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:gcp:ProjectServices", name, None, opts)
        services = [
            gcp.projects.Service(
                f"{name}-{service}",
                project=args.project,
                service=f"{service}.googleapis.com",
                disable_on_destroy=False,
                opts=pulumi.ResourceOptions(parent=self),
            )
            for service in SERVICES
        ]
        enabled = pulumi.Output.all(*(service.service for service in services))
        self.project = enabled.apply(lambda _names: args.project)
        self.register_outputs({"project": self.project})
