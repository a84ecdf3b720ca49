"""Eks: the Cloud of an EKS platform. Imports Pulumi only to provision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from infra.aws import inventory, pools, rules
from infra.aws.config import EksConfig
from infra.builtin_images import JobLayer
from infra.capacity import EFA_RESOURCE, PoolNodes, in_pool, tolerate
from infra.cloud import (
    Cloud,
    FirstPlatform,
    ProvisionedCloud,
    Quota,
    documentation_ranges,
    quotas,
)
from infra.cost import Line
from infra.hardware import PodGroup, Scheduling, gpus
from infra.inventory import Lister, Ownership, PlannedResource, RunCommand
from infra.naming import ACCELERATOR_LABEL
from settings.problem import Problem

if TYPE_CHECKING:
    from infra.platform import Platform


class Eks(ProvisionedCloud):
    """EKS cluster that the stack provisions."""

    first_platform = FirstPlatform(
        account_key="region",
        account_title="AWS region",
        pools={"nvidia-tesla-t4": {"machine_type": "g4dn.2xlarge"}, "nvidia-l4": {"machine_type": "g6.2xlarge"}},
    )
    cluster_component = "trainyard:aws:EksCluster"
    scheme = "s3"
    command = "aws"
    listings = inventory.LISTINGS
    lookups = (*inventory.LISTINGS, *inventory.DEPENDENT_LISTINGS)

    def __init__(self, config: EksConfig) -> None:
        self.config, self.image = config, config.image
        self.cluster_name = config.name
        self.label = config.cluster_label
        self.is_protected = config.deletion_protection
        self.keeps_bucket = config.bucket.keep

    def problems(self) -> list[Problem]:
        return [*rules.problems(self.config), *super().problems()]

    def up_problems(self, checkout: str, stack: str, set_up_bytes: int = 0) -> list[str]:
        del checkout, stack, set_up_bytes
        if not (ranges := documentation_ranges(self.config.authorized_networks)):
            return []
        return [
            f"trainyard:platform.authorized_networks = {', '.join(ranges)}: AWS rejects ranges that are reserved for "
            "documentation; write the public address of this machine, followed by /32"
        ]

    def stale_resources(self, deployment: Mapping[str, Any]) -> list[str]:
        return [*rules.clusters_with_other_version(deployment, self.config), *rules.doubtful_node_groups(deployment)]

    def failed_resources(self, deployment: Mapping[str, Any]) -> list[str]:
        return rules.failed_node_groups(deployment)

    def problems_in_state(self, deployment: Mapping[str, Any]) -> list[Problem]:
        cluster = rules.cluster_in(deployment)
        if cluster is None:
            return list(rules.network_problems(deployment, self.config))
        return rules.update_problems(cluster, self.config)

    def problems_in_cloud(self, deployment: Mapping[str, Any], run_json: RunCommand) -> list[Problem]:
        return list(rules.account_problems(self.config, deployment, run_json))

    def problems_after(self, before: Cloud) -> list[Problem]:
        if not isinstance(before, Eks):
            return []
        return rules.update_problems(rules.deployed_cluster(before.config), self.config)

    def pool_nodes(self) -> list[PoolNodes]:
        return pools.pool_nodes(self.config)

    def quota(self) -> tuple[Quota, ...]:
        return quotas(pools.quota_needs(self.config), self.config.region)

    def remaining_quota(self, run_json: RunCommand) -> Mapping[tuple[str, str], int]:
        return pools.remaining_quota(self.config, run_json)

    def price_lines(self) -> Iterator[Line]:
        return pools.price_lines(self.config)

    def scheduling(self, hosts: PodGroup, pool: str | None = None) -> Scheduling:
        accelerator = hosts.accelerator
        if accelerator is None:
            return Scheduling(node_selector=in_pool(pool))
        plans = (plan for plan in pools.node_groups(self.config) if pool in (None, plan.name))
        plan = next((plan for plan in plans if plan.machine.gpu == accelerator), None)
        if plan is None:
            raise ValueError(f"no pool has {accelerator}")
        # A host with a share of a node's GPUs gets the same share of the node's network adapters, rounded down.
        adapters = plan.machine.efa_interfaces * hosts.accelerators // plan.machine.gpus if plan.efa else 0
        return Scheduling(
            node_selector=in_pool(pool) | {ACCELERATOR_LABEL: accelerator},
            tolerations=(tolerate(gpus.RESOURCE),),
            accelerator_resource=gpus.RESOURCE,
            devices={EFA_RESOURCE: str(adapters)} if adapters else {},
        )

    def lister(self, ownership: Ownership, run_json: RunCommand) -> Lister:
        return lambda listing: inventory.resources(listing, self.config, ownership, run_json)

    def generated_names(self, planned: Iterable[PlannedResource]) -> Mapping[str, str]:
        del planned
        return inventory.generated_names(self.config.name)

    def permissions(self, planned: Iterable[PlannedResource]) -> dict[str, Any]:
        return inventory.permissions(self.config.region, planned)

    def declare(self) -> None:
        from infra.aws.platform import build_components

        build_components(self.config)

    async def build(self, operators: frozenset[str], images: frozenset[str], layers: frozenset[JobLayer]) -> Platform:
        del operators, images, layers
        from infra.aws.platform import build_eks

        return build_eks(self.config)
