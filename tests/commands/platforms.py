"""Platforms of two clouds, and what is known of the resources that they make."""

from __future__ import annotations

import functools
import json
from typing import Any

from commands.remains.listings import Listing
from commands.remains.ours import Ours, ours
from infra.aws.config import EksConfig
from infra.gcp.config import GkeConfig


def gke(name: str, **more: Any) -> GkeConfig:
    """A platform in Google Cloud."""
    return GkeConfig.model_validate_json(json.dumps({"kind": "gke", "project": "p-12345", "name": name, **more}))


def eks(name: str, **more: Any) -> EksConfig:
    """A platform in AWS."""
    return EksConfig.model_validate_json(json.dumps({"kind": "eks", "name": name, **more}))


def known(platform: GkeConfig | EksConfig) -> Ours:
    """What is known of a platform's resources."""
    return _known(type(platform), platform.model_dump_json(exclude_unset=True))


@functools.cache
def _known(kind: type[GkeConfig | EksConfig], settings: str) -> Ours:
    return ours(kind.model_validate_json(settings))


def listing(kind: str, table: tuple[Listing, ...]) -> Listing:
    """The listing of a kind."""
    return next(each for each in table if each.kind == kind)
