"""CheckpointBucket: bucket of checkpoints, metrics and profiles. ImageRepository: repository of the trainer image."""

from __future__ import annotations

import json

import pulumi
from pulumi_aws import ecr, s3

from infra.aws.config import EcrConfig, EksBucketConfig


class CheckpointBucket(pulumi.ComponentResource):
    """Private, encrypted bucket. With `keep`, it stays when the stack is destroyed."""

    name: pulumi.Output[str]
    """Name of the bucket, known after its protections exist."""
    arn: pulumi.Output[str]

    def __init__(
        self, name: str, *, cluster: str, config: EksBucketConfig, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:aws:CheckpointBucket", name, None, opts)
        # A kept bucket also keeps its protections.
        child = pulumi.ResourceOptions(parent=self, retain_on_delete=config.keep)
        bucket = s3.Bucket(f"{cluster}-{name}", bucket=config.name, force_destroy=not config.keep, opts=child)
        protections = self._create_protections(name, bucket, child)
        versioning = s3.BucketVersioning(
            f"{name}-versioning",
            bucket=bucket.bucket,
            versioning_configuration=s3.BucketVersioningVersioningConfigurationArgs(status="Enabled"),
            opts=child,
        )
        s3.BucketLifecycleConfiguration(
            f"{name}-lifecycle", bucket=versioning.bucket, rules=lifecycle(config), opts=child
        )
        self.name = pulumi.Output.all(bucket.bucket, *protections).apply(lambda values: str(values[0]))
        self.arn = bucket.arn
        self.register_outputs({"name": self.name, "arn": self.arn})

    def _create_protections(
        self, name: str, bucket: s3.Bucket, child: pulumi.ResourceOptions
    ) -> list[pulumi.Output[str]]:
        return [
            s3.BucketPublicAccessBlock(
                f"{name}-private",
                bucket=bucket.bucket,
                block_public_acls=True,
                block_public_policy=True,
                ignore_public_acls=True,
                restrict_public_buckets=True,
                opts=child,
            ).id,
            s3.BucketOwnershipControls(
                f"{name}-owner",
                bucket=bucket.bucket,
                rule=s3.BucketOwnershipControlsRuleArgs(object_ownership="BucketOwnerEnforced"),
                opts=child,
            ).id,
            s3.BucketServerSideEncryptionConfiguration(
                f"{name}-encryption",
                bucket=bucket.bucket,
                rules=[
                    s3.BucketServerSideEncryptionConfigurationRuleArgs(
                        apply_server_side_encryption_by_default=s3.BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs(
                            sse_algorithm="AES256"
                        )
                    )
                ],
                opts=child,
            ).id,
            s3.BucketPolicy(
                f"{name}-policy", bucket=bucket.bucket, policy=encrypted_transport_only(bucket.arn), opts=child
            ).id,
        ]


def encrypted_transport_only(bucket: pulumi.Output[str]) -> pulumi.Output[str]:
    """Return a policy that denies unencrypted access.

    https://docs.aws.amazon.com/AmazonS3/latest/userguide/security-best-practices.html
    """
    statement = {
        "Sid": "EncryptedTransportOnly",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [bucket, pulumi.Output.concat(bucket, "/*")],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return pulumi.Output.json_dumps({"Version": "2012-10-17", "Statement": [statement]})


def lifecycle(config: EksBucketConfig) -> list[s3.BucketLifecycleConfigurationRuleArgs]:
    """Return the lifecycle rules: https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-lifecycle-mgmt.html"""
    ages = {"profiles": config.profile_days, "checkpoints": config.checkpoint_days}
    rules = [
        s3.BucketLifecycleConfigurationRuleArgs(
            id=kind,
            status="Enabled",
            filter=s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=f"{config.prefix}/{kind}/"),
            expiration=s3.BucketLifecycleConfigurationRuleExpirationArgs(days=days),
        )
        for kind, days in ages.items()
        if days is not None
    ]
    leftovers = s3.BucketLifecycleConfigurationRuleArgs(
        id="leftovers",
        status="Enabled",
        filter=s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=""),
        noncurrent_version_expiration=s3.BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs(
            noncurrent_days=config.restore_days
        ),
        abort_incomplete_multipart_upload=s3.BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs(
            days_after_initiation=7
        ),
    )
    return [*rules, leftovers]


class ImageRepository(pulumi.ComponentResource):
    """Repository with image scanning and encryption. `make down` deletes it and its images; `make up` rebuilds them."""

    url: pulumi.Output[str]
    """Name of the image without its tag."""

    def __init__(
        self, name: str, *, repository: str, config: EcrConfig, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:aws:ImageRepository", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        resource = ecr.Repository(
            f"{name}-repository",
            name=repository,
            force_delete=True,
            # The tag is the branch's name, so each push moves the tag. Jobs use the image's digest.
            image_tag_mutability="MUTABLE",
            image_scanning_configuration=ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
            encryption_configurations=[ecr.RepositoryEncryptionConfigurationArgs(encryption_type="AES256")],
            opts=child,
        )
        rule = {
            "rulePriority": 1,
            "description": f"keep the newest {config.keep_images}",
            "selection": {"tagStatus": "any", "countType": "imageCountMoreThan", "countNumber": config.keep_images},
            "action": {"type": "expire"},
        }
        ecr.LifecyclePolicy(
            f"{name}-lifecycle", repository=resource.name, policy=json.dumps({"rules": [rule]}), opts=child
        )
        self.url = resource.repository_url
        self.register_outputs({"url": self.url})
