"""CheckpointBucket: bucket of checkpoints, metrics and profiles. ImageRepository: repository of the trainer image."""

from __future__ import annotations

import pulumi
import pulumi_gcp as gcp

from infra.gcp.config import GkeBucketConfig, GkeConfig
from infra.naming import cloud_labels

DAY_SECONDS = 24 * 60 * 60
MAX_IMAGE_AGE = "2592000s"
"""Age after which the registry deletes images, except the newest: 30 days."""
READER_ROLE = "roles/artifactregistry.reader"
"""Role to pull images: https://cloud.google.com/artifact-registry/docs/access-control#roles"""


class CheckpointBucket(pulumi.ComponentResource):
    """Private bucket with a hierarchical namespace. With `keep`, it stays when the stack is destroyed."""

    url: pulumi.Output[str]
    """URL of the bucket, known after the jobs have access."""
    name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        *,
        project: pulumi.Input[str],
        cluster: str,
        location: str,
        config: GkeBucketConfig,
        member: pulumi.Input[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("trainyard:gcp:CheckpointBucket", name, None, opts)
        bucket = gcp.storage.Bucket(
            # Pulumi's random suffix allows a new bucket next to a kept one.
            f"{cluster}-{name}",
            name=config.name,
            project=project,
            location=location if config.location is None else config.location,
            storage_class="STANDARD",
            uniform_bucket_level_access=True,
            public_access_prevention="enforced",
            hierarchical_namespace=gcp.storage.BucketHierarchicalNamespaceArgs(enabled=True),
            soft_delete_policy=gcp.storage.BucketSoftDeletePolicyArgs(
                retention_duration_seconds=config.soft_delete_days * DAY_SECONDS
            ),
            lifecycle_rules=lifecycle(config),
            force_destroy=not config.keep,
            labels=cloud_labels(cluster),
            opts=pulumi.ResourceOptions(parent=self, retain_on_delete=config.keep),
        )
        grant = gcp.storage.BucketIAMMember(
            f"{name}-jobs",
            bucket=bucket.name,
            role="roles/storage.objectUser",
            member=member,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.name = bucket.name
        self.url = pulumi.Output.all(bucket.name, grant.id).apply(lambda values: f"gs://{values[0]}")
        self.register_outputs({"url": self.url, "name": self.name})


def lifecycle(config: GkeBucketConfig) -> list[gcp.storage.BucketLifecycleRuleArgs]:
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


class ImageRepository(pulumi.ComponentResource):
    """Docker repository that nodes can pull from.

    The stack creates and deletes only a repository with the cluster's name. Any other repository belongs to the
    project: it can exist already, and other stacks can use it.
    """

    url: pulumi.Output[str]
    """Prefix of image names without the last slash, known once nodes can pull."""

    def __init__(
        self,
        name: str,
        *,
        project: pulumi.Input[str],
        config: GkeConfig,
        reader: pulumi.Input[str],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("trainyard:gcp:ImageRepository", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        member = pulumi.Output.concat("serviceAccount:", reader)
        grant: gcp.artifactregistry.RepositoryIamMember | gcp.projects.IAMMember
        if config.owns_repository:
            repository = _own_repository(f"{name}-repository", project, config, child)
            grant = gcp.artifactregistry.RepositoryIamMember(
                f"{name}-nodes",
                project=project,
                location=repository.location,
                repository=repository.name,
                role=READER_ROLE,
                member=member,
                opts=child,
            )
        else:
            # The repository may not exist before the first push, so grant the role in the whole project.
            grant = gcp.projects.IAMMember(
                f"{name}-nodes", project=project, role=READER_ROLE, member=member, opts=child
            )
        prefix = f"{config.registry_host}/{{project}}{'' if config.uses_gcr else f'/{config.repository}'}"
        self.url = pulumi.Output.all(project, grant.id).apply(lambda values: prefix.format(project=values[0]))
        self.register_outputs({"url": self.url})


def _own_repository(
    name: str, project: pulumi.Input[str], config: GkeConfig, opts: pulumi.ResourceOptions
) -> gcp.artifactregistry.Repository:
    """Create the repository with the cluster's name."""
    return gcp.artifactregistry.Repository(
        name,
        project=project,
        location=config.registry_host.removesuffix("-docker.pkg.dev"),
        repository_id=config.repository,
        format="DOCKER",
        description="Trainer images",
        cleanup_policies=_cleanup_policies(config.registry.keep_images),
        cleanup_policy_dry_run=False,
        labels=cloud_labels(config.name),
        opts=opts,
    )


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
