"""Capacity of the operators on nodes that share one machine, outside or inside the jobs' share. Pure."""

from __future__ import annotations

from infra.hardware import Capacity, kept_for_other_nodes, node_share
from infra.operators.releases import REQUEST, ROOM


def reserved(machine: Capacity, num_nodes: int) -> Capacity:
    """Return the capacity that each of `num_nodes` equal nodes on one machine must not offer.

    It is the other nodes' shares, less the capacity of all operators. Operators then run outside the jobs' shares, as
    the control plane does. A single node offers the whole machine, so operators use part of the jobs' share.
    """
    kept = kept_for_other_nodes(machine, num_nodes)
    return Capacity(millicores=max(0, kept.millicores - ROOM.millicores), memory=max(0, kept.memory - ROOM.memory))


def left_for_jobs(machine: Capacity, num_nodes: int, num_operators: int) -> Capacity:
    """Return a node's capacity for jobs in the worst case, in which all `num_operators` operators run on that node."""
    share = node_share(machine, num_nodes)
    kept, withheld = kept_for_other_nodes(machine, num_nodes), reserved(machine, num_nodes)
    spare = Capacity(millicores=kept.millicores - withheld.millicores, memory=kept.memory - withheld.memory)
    return Capacity(
        millicores=share.millicores - max(0, num_operators * REQUEST.millicores - spare.millicores),
        memory=share.memory - max(0, num_operators * REQUEST.memory - spare.memory),
    )
