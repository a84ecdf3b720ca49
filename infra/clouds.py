"""Registry of clouds: PlatformConfig, the settings of a platform, and the Cloud of each `kind`. No Pulumi."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from infra.aws.cloud import Eks
from infra.aws.config import EksConfig
from infra.cloud import Cloud
from infra.existing.cloud import Existing
from infra.existing.config import KubeconfigConfig
from infra.gcp.cloud import Gke
from infra.gcp.config import GkeConfig
from infra.local.cloud import Local
from infra.local.config import LocalConfig

PlatformConfig = Annotated[LocalConfig | KubeconfigConfig | GkeConfig | EksConfig, Field(discriminator="kind")]
"""Settings of one kind of platform."""


CLOUDS: Mapping[str, Callable[[Any], Cloud]] = MappingProxyType(
    {"local": Local, "kubeconfig": Existing, "gke": Gke, "eks": Eks}
)
"""Cloud class for each `kind` of platform settings."""


def cloud_of(platform: PlatformConfig) -> Cloud:
    """Return the Cloud of a platform's settings."""
    return CLOUDS[platform.kind](platform)
