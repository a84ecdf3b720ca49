"""ProjectServices: Google Cloud APIs that a platform needs, enabled in its project."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

SERVICES = ("artifactregistry", "compute", "container", "iam", "logging", "monitoring", "storage")
"""APIs without their suffix `.googleapis.com`."""


@dataclass(frozen=True, kw_only=True)
class ProjectServicesArgs:
    """Inputs of `ProjectServices`."""

    project: str
    """Id of the project."""


class ProjectServices(pulumi.ComponentResource):
    """Enabled APIs. They stay enabled after the stack is destroyed, because other users may need them."""

    project: pulumi.Output[str]
    """Project id, known when every API is enabled. Resources that need the APIs use this output."""

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
