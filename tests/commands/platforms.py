"""Platforms of both clouds for tests, with the ownership, permissions and listings of their resources."""

from __future__ import annotations

import functools
import json
from typing import Any

from commands.cloud_inventory import ownership
from commands.review.recorded import run
from infra.aws.config import EksConfig
from infra.cloud import ProvisionedCloud
from infra.gcp.config import GkeConfig
from infra.inventory import Listing, Ownership
from stack.config import cloud_of


def gke(name: str, **more: Any) -> GkeConfig:
    """Return a platform on Google Cloud."""
    return GkeConfig.model_validate_json(json.dumps({"kind": "gke", "project": "p-12345", "name": name, **more}))


def eks(name: str, **more: Any) -> EksConfig:
    """Return a platform on AWS."""
    return EksConfig.model_validate_json(json.dumps({"kind": "eks", "name": name, **more}))


def ownership_of(platform: GkeConfig | EksConfig) -> Ownership:
    """Return the ownership rules of a platform's resources."""
    return _ownership(type(platform), platform.model_dump_json(exclude_unset=True))


@functools.cache
def _ownership(kind: type[GkeConfig | EksConfig], settings: str) -> Ownership:
    return ownership(cloud(kind.model_validate_json(settings)))


def cloud(platform: GkeConfig | EksConfig) -> ProvisionedCloud:
    """Return the cloud of a platform."""
    found = cloud_of(platform).provisioned
    assert found is not None
    return found


def permissions_of(platform: GkeConfig | EksConfig) -> dict[str, Any]:
    """Return the permissions for a platform's stack."""
    found = cloud(platform)
    return found.permissions(run(found.declare).records)


def listing(kind: str, table: tuple[Listing, ...]) -> Listing:
    """Return the listing of a kind of resource."""
    return next(each for each in table if each.kind == kind)
