"""Gke: the Cloud of a GKE platform. Imports Pulumi only to provision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from infra.builtin_images import JobLayer, cloud_images
from infra.capacity import PoolNodes
from infra.cloud import FirstPlatform, ProvisionedCloud, Quota, quotas
from infra.cost import Line
from infra.gcp import inventory, pools, rules
from infra.gcp.config import GkeConfig
from infra.hardware import PodGroup, Scheduling
from infra.inventory import Lister, Ownership, PlannedResource, RunCommand
from settings.problem import Problem

if TYPE_CHECKING:
    from infra.platform import Platform


class Gke(ProvisionedCloud):
    """GKE cluster that the stack provisions."""

    first_platform = FirstPlatform(
        account_key="project",
        account_title="Google Cloud project",
        pools={
            accelerator: {"machine_type": machine_type, "accelerator": accelerator, "accelerators_per_node": 1}
            for accelerator, machine_type in {"nvidia-tesla-t4": "n1-standard-8", "nvidia-l4": "g2-standard-8"}.items()
        },
    )
    scheme = "gs"
    command = "gcloud"
    listings = inventory.LISTINGS

    def __init__(self, config: GkeConfig) -> None:
        self.config, self.image = config, config.image
        self.cluster_name = config.name
        self.label = config.cluster_label
        self.is_protected = config.deletion_protection
        self.keeps_bucket = config.bucket.keep

    def problems(self) -> list[Problem]:
        return [*rules.problems(self.config), *super().problems()]

    def pool_nodes(self) -> list[PoolNodes]:
        return pools.pool_nodes(self.config)

    def quota(self) -> tuple[Quota, ...]:
        return quotas(pools.quota_needs(self.config), self.config.region)

    def quota_left(self, run_json: RunCommand) -> Mapping[tuple[str, str], int]:
        return pools.quota_left(self.config, run_json)

    def price_lines(self) -> Iterator[Line]:
        return pools.price_lines(self.config)

    def scheduling(self, hosts: PodGroup, pool: str | None = None) -> Scheduling:
        return pools.scheduling(self.config, hosts, pool)

    def lister(self, ownership: Ownership, run_json: RunCommand) -> Lister:
        del ownership
        return lambda listing: inventory.resources(listing, self.config, run_json)

    def generated_names(self, planned: Iterable[PlannedResource]) -> Mapping[str, str]:
        return inventory.generated_names(self.config.name, planned)

    def permissions(self, planned: Iterable[PlannedResource]) -> dict[str, Any]:
        return inventory.permissions(self.config.project, planned)

    def declare(self) -> None:
        from infra.gcp.platform import build_components

        build_components(self.config)

    async def build(
        self, operators: frozenset[str], images: frozenset[str], layers: frozenset[JobLayer] = frozenset()
    ) -> Platform:
        del operators
        from infra.gcp.platform import build_gke

        return build_gke(self.config, cloud_images(images), layers)
