"""PlatformConfig: the settings of a platform, a union with `kind` as discriminator. No Pulumi."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from infra.aws.config import EksConfig
from infra.existing.config import KubeconfigConfig
from infra.gcp.config import GkeConfig
from infra.local.config import LocalConfig

PlatformConfig = Annotated[LocalConfig | KubeconfigConfig | GkeConfig | EksConfig, Field(discriminator="kind")]
"""Settings of one kind of platform."""
