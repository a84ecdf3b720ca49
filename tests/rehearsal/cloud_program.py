"""Resources of a stack in its cloud, without those inside the cluster: the program of killed updates."""

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
    """Create the resources."""
    cloud = cloud_of(platform_of(settings)).provisioned
    assert cloud is not None
    cloud.declare()
