"""CheckpointBucket: bucket of checkpoints, metrics and profiles. ImageRepository: repository of the trainer image."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.gcp.config import GkeBucketConfig, RegistryConfig
from infra.naming import cloud_labels

DAY_SECONDS = 24 * 60 * 60
MAX_IMAGE_AGE = "2592000s"
"""Age after which the registry deletes images: 30 days."""
_GCR_LOCATIONS = {"gcr.io": "us", "us.gcr.io": "us", "eu.gcr.io": "europe", "asia.gcr.io": "asia"}
"""Locations of the gcr.io hosts: https://cloud.google.com/artifact-registry/docs/transition/gcr-repositories"""


@dataclass(frozen=True, kw_only=True)
class CheckpointBucketArgs:
    """Inputs of `CheckpointBucket`."""

    project: pulumi.Input[str]
    """Project of the bucket."""
    cluster: str
    """Name of the cluster, prefix of the bucket's name."""
    location: str
    """Region of the nodes, the bucket's default location."""
    config: GkeBucketConfig
    """Settings of the bucket."""
    member: pulumi.Input[str]
    """IAM member of the jobs, which can read and write objects."""


class CheckpointBucket(pulumi.ComponentResource):
    """Private bucket with folders. It outlives the stack if `keep` is set."""

    url: pulumi.Output[str]
    """URL of the bucket, known after the jobs have access."""
    name: pulumi.Output[str]
    """Name of the bucket."""

    def __init__(self, name: str, args: CheckpointBucketArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:gcp:CheckpointBucket", name, None, opts)
        config = args.config
        bucket = gcp.storage.Bucket(
            # Pulumi's random suffix allows a new bucket next to a kept one.
            f"{args.cluster}-{name}",
            name=config.name,
            project=args.project,
            location=args.location if config.location is None else config.location,
            storage_class="STANDARD",
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            hierarchical_namespace=gcp.storage.BucketHierarchicalNamespaceArgs(enabled=True),
            soft_delete_policy=gcp.storage.BucketSoftDeletePolicyArgs(
                retention_duration_seconds=config.soft_delete_days * DAY_SECONDS
            ),
            lifecycle_rules=_lifecycle_rules(config),
            force_destroy=not config.keep,
            labels=cloud_labels(args.cluster),
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=config.keep),
        )
        grant = gcp.storage.BucketIAMMember(
            f"{name}-jobs",
            bucket=bucket.name,
            role="roles/storage.objectUser",
            member=args.member,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.name = bucket.name
        self.url = pulumi.Output.all(bucket.name, grant.id).apply(lambda values: f"gs://{values[0]}")
        self.register_outputs({"url": self.url, "name": self.name})


def _lifecycle_rules(config: GkeBucketConfig) -> list[gcp.storage.BucketLifecycleRuleArgs]:
    """Return the lifecycle rules: https://cloud.google.com/storage/docs/lifecycle"""
    ages = {"profiles/": config.profile_days, "checkpoints/": config.checkpoint_days}
    rules = [
        gcp.storage.BucketLifecycleRuleArgs(
            action=gcp.storage.BucketLifecycleRuleActionArgs(type="Delete"),
            condition=gcp.storage.BucketLifecycleRuleConditionArgs(age=days, matches_prefixes=[prefix]),
        )
        for prefix, days in ages.items()
        if days is not None
    ]
    abort_uploads = gcp.storage.BucketLifecycleRuleArgs(
        action=gcp.storage.BucketLifecycleRuleActionArgs(type="AbortIncompleteMultipartUpload"),
        condition=gcp.storage.BucketLifecycleRuleConditionArgs(age=7),
    )
    return [*rules, abort_uploads]


@dataclass(frozen=True, kw_only=True)
class ImageRepositoryArgs:
    """Inputs of `ImageRepository`."""

    project: pulumi.Input[str]
    """Project of the repository."""
    cluster: str
    """Name of the cluster, for the ownership label."""
    config: RegistryConfig
    """Settings of the repository."""
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
            cleanup_policies=_cleanup_policies(args.config.keep_images),
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


def _cleanup_policies(keep_count: int) -> list[gcp.artifactregistry.RepositoryCleanupPolicyArgs]:
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
