"""ImageRepository: Artifact Registry repository of the trainer image, with cleanup policies."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.gcp.config import RegistryConfig
from infra.naming import cloud_labels

MAX_IMAGE_AGE = "2592000s"
"""Age after which the registry deletes images: 30 days."""
_GCR_LOCATIONS = {"gcr.io": "us", "us.gcr.io": "us", "eu.gcr.io": "europe", "asia.gcr.io": "asia"}
"""Locations of the gcr.io hosts: https://cloud.google.com/artifact-registry/docs/transition/gcr-repositories"""


@dataclass(frozen=True, kw_only=True)
class ImageRepositoryArgs:
    """Inputs of `ImageRepository`."""

    project: pulumi.Input[str]
    """Project of the repository."""
    cluster: str
    """Name of the cluster, for the ownership label."""
    config: RegistryConfig
    """Settings."""
    reader: pulumi.Input[str]
    """E-mail address of the nodes' service account, which pulls images."""


class ImageRepository(pulumi.ComponentResource):
    """Docker repository that nodes can pull from."""

    url: pulumi.Output[str]
    """Prefix of image names without the last slash, known when nodes can pull."""

    def __init__(self, name: str, args: ImageRepositoryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:gcp:ImageRepository", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        location, repository_id, prefix = repository_address(args.config)
        repository = gcp.artifactregistry.Repository(
            f"{name}-repository",
            project=args.project,
            location=location,
            repository_id=repository_id,
            format="DOCKER",
            description="Trainer images",
            cleanup_policies=_cleanup(args.config.keep_images),
            cleanup_policy_dry_run=False,
            labels=cloud_labels(args.cluster),
            opts=child,
        )
        grant = gcp.artifactregistry.RepositoryIamMember(
            f"{name}-nodes",
            project=args.project,
            location=location,
            repository=repository.name,
            role="roles/artifactregistry.reader",
            member=pulumi.Output.concat("serviceAccount:", args.reader),
            opts=child,
        )
        self.url = pulumi.Output.all(args.project, grant.id).apply(lambda values: prefix.format(project=values[0]))
        self.register_outputs({"url": self.url})


def repository_address(config: RegistryConfig) -> tuple[str, str, str]:
    """Return the repository's location, its id, and the prefix of image names with a `{project}` placeholder."""
    if config.host in _GCR_LOCATIONS:
        return _GCR_LOCATIONS[config.host], config.host, f"{config.host}/{{project}}"
    location = config.host.removesuffix("-docker.pkg.dev")
    return location, config.repository, f"{config.host}/{{project}}/{config.repository}"


def _cleanup(keep_count: int) -> list[gcp.artifactregistry.RepositoryCleanupPolicyArgs]:
    """Return the cleanup policies: https://cloud.google.com/artifact-registry/docs/repositories/cleanup-policy"""
    return [
        gcp.artifactregistry.RepositoryCleanupPolicyArgs(
            id="delete-stale",
            action="DELETE",
            condition=gcp.artifactregistry.RepositoryCleanupPolicyConditionArgs(
                tag_state="ANY", older_than=MAX_IMAGE_AGE
            ),
        ),
        gcp.artifactregistry.RepositoryCleanupPolicyArgs(
            id="keep-newest",
            action="KEEP",
            most_recent_versions=gcp.artifactregistry.RepositoryCleanupPolicyMostRecentVersionsArgs(
                keep_count=keep_count
            ),
        ),
    ]
