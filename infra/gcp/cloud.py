"""Gke: the Cloud of a GKE platform. Imports Pulumi only to provision."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from infra.builtin_images import JobLayer
from infra.capacity import PoolNodes, in_pool, tolerate
from infra.cloud import FirstPlatform, ProvisionedCloud, Quota, quotas
from infra.cost import Line
from infra.gcp import inventory, pools, rules
from infra.gcp.config import AUTH_PLUGIN, INSTALL_AUTH_PLUGIN, GkeConfig
from infra.hardware import PodGroup, Scheduling, gpus, tpus
from infra.inventory import Lister, Ownership, PlannedResource, RunCommand
from infra.naming import COMPUTE_CLASS_LABEL, QUEUED_LABEL
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
    cluster_component = "trainyard:gcp:GkeCluster"
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

    def up_problems(self, checkout: str, stack: str, set_up_bytes: int = 0) -> list[str]:
        del checkout, stack, set_up_bytes
        if shutil.which(AUTH_PLUGIN):
            return []
        return [f"{AUTH_PLUGIN}: is not installed, so Pulumi cannot create jobs in the cluster; {INSTALL_AUTH_PLUGIN}"]

    def problems_in_state(self, deployment: Mapping[str, Any]) -> list[Problem]:
        return list(rules.repository_problems(deployment))

    def pool_nodes(self) -> list[PoolNodes]:
        return pools.pool_nodes(self.config)

    def quota(self) -> tuple[Quota, ...]:
        return quotas(pools.quota_needs(self.config), self.config.region)

    def remaining_quota(self, run_json: RunCommand) -> Mapping[tuple[str, str], int]:
        return pools.remaining_quota(self.config, run_json)

    def price_lines(self) -> Iterator[Line]:
        return pools.price_lines(self.config)

    def scheduling(self, hosts: PodGroup, pool: str | None = None) -> Scheduling:
        accelerator, tpu = hosts.accelerator, hosts.tpu
        plans = [plan for plan in pools.node_pools(self.config) if pool in (None, plan.pool.name)]
        if accelerator is None:
            if pool is None or not (plans and plans[0].has_fallback):
                return Scheduling(node_selector=in_pool(pool))
            selector = in_pool(pool) | {COMPUTE_CLASS_LABEL: pool}
            return Scheduling(node_selector=selector, tolerations=(tolerate(COMPUTE_CLASS_LABEL),))
        plan = next((plan for plan in plans if (plan.tpu == tpu if tpu else plan.gpu == accelerator)), None)
        if plan is None:
            raise ValueError(f"no pool has {accelerator}")
        resource = tpus.RESOURCE if tpu else gpus.RESOURCE
        selector = in_pool(pool) | ({} if tpu else {pools.GPU_LABEL: accelerator})
        tolerations = [tolerate(resource)]
        if plan.has_fallback:
            selector[COMPUTE_CLASS_LABEL] = plan.pool.name
            tolerations.append(tolerate(COMPUTE_CLASS_LABEL))
        if any(model.is_queued for model in plan.pool.models):
            tolerations.append(tolerate(QUEUED_LABEL))
        fabric = pools.fabric_of(plan)
        return Scheduling(
            node_selector=selector,
            tolerations=tuple(tolerations),
            accelerator_resource=resource,
            annotations=pools.pod_annotations(fabric.interfaces) if fabric else {},
            environment={} if tpu else pools.DRIVER_LIBRARIES,
            nccl_environment=fabric.nccl_environment if fabric else None,
        )

    def lister(self, ownership: Ownership, run_json: RunCommand) -> Lister:
        del ownership
        return lambda listing: inventory.resources(listing, self.config, run_json)

    def generated_names(self, planned: Iterable[PlannedResource]) -> Mapping[str, str]:
        return inventory.generated_names(self.config.name, planned)

    def permissions(self, planned: Iterable[PlannedResource]) -> dict[str, Any]:
        return inventory.permissions(self.config, planned)

    def declare(self) -> None:
        from infra.gcp.platform import build_components

        build_components(self.config)

    async def build(self, operators: frozenset[str], images: frozenset[str], layers: frozenset[JobLayer]) -> Platform:
        del operators, images, layers
        from infra.gcp.platform import build_gke

        return build_gke(self.config)
