"""Registry of clouds: the Cloud of each kind of platform. No Pulumi."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from infra.aws.cloud import Eks
from infra.cloud import Cloud
from infra.config import PlatformConfig
from infra.existing.cloud import Existing
from infra.gcp.cloud import Gke
from infra.local.cloud import Local

CLOUDS: Mapping[str, Callable[[Any], Cloud]] = MappingProxyType(
    {"local": Local, "kubeconfig": Existing, "gke": Gke, "eks": Eks}
)
"""Cloud class for each `kind` of platform settings."""


def cloud_of(platform: PlatformConfig) -> Cloud:
    """Return the Cloud of a platform's settings."""
    return CLOUDS[platform.kind](platform)
