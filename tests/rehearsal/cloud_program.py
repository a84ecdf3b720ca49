"""Program that creates a platform's resources in its cloud, without the resources inside the cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from infra.aws.config import EksConfig
from infra.gcp.config import GkeConfig
from stack.config import cloud_of


def platform_of(settings: Mapping[str, Any]) -> GkeConfig | EksConfig:
    """Return the parsed settings of a platform."""
    kinds: dict[str, type[GkeConfig | EksConfig]] = {"gke": GkeConfig, "eks": EksConfig}
    return kinds[settings["kind"]].model_validate_json(json.dumps(settings))


def build(settings: Mapping[str, Any]) -> None:
    """Declare the resources of a platform."""
    cloud = cloud_of(platform_of(settings)).provisioned
    assert cloud is not None
    cloud.declare()
