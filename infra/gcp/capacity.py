"""Capacity of a GKE platform's nodes for jobs, by pool. No Pulumi."""

from __future__ import annotations

from infra.capacity.offers import SYSTEM, Offer, without_daemons
from infra.gcp.config import GkeConfig
from infra.gcp.pools import num_nodes, pool_plans, system_machine
from infra.hardware import Capacity
from infra.hardware.gce import gce_machine
from infra.hardware.gke_nodes import gke_allocatable

KEPT_FOR_DAEMONS = Capacity(millicores=450, memory=768 * 2**20)
"""Requests of the agents on every GKE node: 426 to 443 millicores and up to 596 MiB on measured CPU nodes.

Source: 2i2c-org/infrastructure 1097ae3, deployer/commands/generate/resource_allocation/node-capacity-info.json. A node
of GKE v1.36 requested 384 millicores and 626 MiB (October 2026). Agents for GPUs request more.
"""


def offers(platform: GkeConfig) -> list[Offer]:
    """Return the nodes of each pool, with the system pool last."""
    found = []
    for pool in platform.pools:
        # Slices, provisioning models and zones have identical nodes. Models and zones are alternatives.
        plan = pool_plans(platform, pool)[0]
        node = without_daemons(gke_allocatable(plan.machine), KEPT_FOR_DAEMONS)
        found.append(
            Offer(
                pool=pool.name,
                nodes=num_nodes(pool),
                node=node,
                gpu=plan.gpu,
                gpus=plan.gpus,
                tpu=plan.tpu,
                queued=pool.models[0].is_queued,
            )
        )
    system = without_daemons(gke_allocatable(gce_machine(system_machine(platform))), KEPT_FOR_DAEMONS)
    return [*found, Offer(pool=SYSTEM, nodes=platform.system_pool.max_nodes, node=system)]
