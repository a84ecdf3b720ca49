"""What a stack makes in its cloud, without what is inside the cluster: the program of killed updates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infra.aws import cloud as aws
from infra.aws.config import EksConfig
from infra.gcp import cloud as gcp
from infra.gcp.config import GkeConfig


def platform_of(settings: Mapping[str, Any]) -> GkeConfig | EksConfig:
    """The settings of a platform, read."""
    kinds: dict[str, type[GkeConfig | EksConfig]] = {"gke": GkeConfig, "eks": EksConfig}
    return kinds[settings["kind"]].model_validate_json(json.dumps(settings))


def build(settings: Mapping[str, Any]) -> None:
    """Make it."""
    platform = platform_of(settings)
    if isinstance(platform, GkeConfig):
        gcp.build_cloud(platform)
    else:
        aws.build_cloud(platform)
