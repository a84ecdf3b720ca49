"""The contradictions in a platform's settings, whichever platform it is. No Pulumi."""

from __future__ import annotations

from infra.aws import rules as aws
from infra.aws.config import EksConfig
from infra.config import KubeconfigConfig, PlatformConfig
from infra.gcp import rules as gcp
from infra.gcp.config import GkeConfig
from infra.image.rules import image_problems
from infra.settings.problem import Problem
from infra.settings.scalars import not_made_here


def contradictions(platform: PlatformConfig) -> list[Problem]:
    """Values of the platform that are right by themselves and wrong together."""
    if isinstance(platform, GkeConfig):
        return [*gcp.problems(platform), *image_problems(platform.image)]
    if isinstance(platform, EksConfig):
        return [*aws.problems(platform), *image_problems(platform.image)]
    made = platform.namespace if isinstance(platform, KubeconfigConfig) and platform.create_namespace else ""
    if message := not_made_here(made):
        return [
            Problem(
                "kubeconfig.namespace.reserved",
                ("platform", "namespace"),
                f"{message}, or add `create_namespace: false` if it is given to you",
                made,
            )
        ]
    return []
