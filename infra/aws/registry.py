"""ImageRepository: ECR repository of the trainer image, with a lifecycle policy."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pulumi
from pulumi_aws import ecr

from infra.aws.config import EcrConfig


@dataclass(frozen=True, kw_only=True)
class ImageRepositoryArgs:
    """Inputs of `ImageRepository`."""

    name: str
    """Name of the repository: cluster name, then image name."""
    config: EcrConfig
    """Settings."""


class ImageRepository(pulumi.ComponentResource):
    """Repository with image scanning and encryption. It is deleted with its images, which `up` can rebuild."""

    url: pulumi.Output[str]
    """Name of the image without its tag."""

    def __init__(self, name: str, args: ImageRepositoryArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:aws:ImageRepository", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        repository = ecr.Repository(
            f"{name}-repository",
            name=args.name,
            force_delete=True,
            # The tag is the branch and moves with it. Jobs use the image's digest.
            image_tag_mutability="MUTABLE",
            image_scanning_configuration=ecr.RepositoryImageScanningConfigurationArgs(scan_on_push=True),
            encryption_configurations=[ecr.RepositoryEncryptionConfigurationArgs(encryption_type="AES256")],
            opts=child,
        )
        rule = {
            "rulePriority": 1,
            "description": f"keep the newest {args.config.keep_images}",
            "selection": {
                "tagStatus": "any",
                "countType": "imageCountMoreThan",
                "countNumber": args.config.keep_images,
            },
            "action": {"type": "expire"},
        }
        ecr.LifecyclePolicy(
            f"{name}-lifecycle", repository=repository.name, policy=json.dumps({"rules": [rule]}), opts=child
        )
        self.url = repository.repository_url
        self.register_outputs({"url": self.url})
