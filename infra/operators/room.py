"""The room that operators have on the nodes of one machine, beside or within the jobs' share. Pure."""

from __future__ import annotations

from infra.hardware import Capacity, kept_for_other_nodes, node_share
from infra.operators.releases import REQUEST, ROOM


def reserved(machine: Capacity, num_nodes: int) -> Capacity:
    """What each of `num_nodes` equal nodes on one machine does not offer: the others' shares, less room for operators.

    Operators run beside the jobs' shares, as the control plane does. A single node has no more than the machine: there
    they take their room from the jobs.
    """
    kept = kept_for_other_nodes(machine, num_nodes)
    return Capacity(millicores=max(0, kept.millicores - ROOM.millicores), memory=max(0, kept.memory - ROOM.memory))


def left_for_jobs(machine: Capacity, num_nodes: int, num_operators: int) -> Capacity:
    """What each node has for jobs when `num_operators` operators run, all on that node at worst."""
    share = node_share(machine, num_nodes)
    kept, withheld = kept_for_other_nodes(machine, num_nodes), reserved(machine, num_nodes)
    beside = Capacity(millicores=kept.millicores - withheld.millicores, memory=kept.memory - withheld.memory)
    return Capacity(
        millicores=share.millicores - max(0, num_operators * REQUEST.millicores - beside.millicores),
        memory=share.memory - max(0, num_operators * REQUEST.memory - beside.memory),
    )
