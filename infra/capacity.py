"""Capacity planning: the nodes that pools pool, and the pools that jobs fit in, from the settings alone. No Pulumi."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from infra.hardware import Capacity, PodGroup, PoolCapacity, gpus, tpus
from infra.hardware.node_capacity import MOST_PODS
from infra.hardware.tpus import TpuSlice
from infra.naming import POOL_LABEL
from infra.scheduling import EFA_RESOURCE
from settings.problem import Problem

DAEMON_REQUESTS = Capacity(millicores=300, memory=512 * 2**20)
"""Estimated requests of a cloud's agents (network, logs, metrics, devices) on a node. Not measured."""

SYSTEM = "system"
"""Name of the pool that every cluster has."""

DAEMON_PODS = 10
"""Number of agent pods on a node. EKS has up to eight: network, proxy, identity, disks, health, DCGM, GPUs, EFA."""

NodeState = tuple[int, int, int, int]
"""Remaining capacity of a node: accelerators, millicores, bytes of memory, pods."""
Nodes = Counter[NodeState]
"""Number of nodes by remaining capacity."""


@dataclass(frozen=True, kw_only=True)
class PoolNodes:
    """Identical nodes of a pool."""

    name: str
    """Name of the pool."""
    nodes: int
    node: Capacity
    gpu: str | None = None
    gpus: int = 0
    tpu: TpuSlice | None = None
    adapters: int = 0
    """Elastic Fabric Adapters of each node, which pods request as devices."""
    queued: bool = False
    """True if nodes are created only when a queue requests them."""
    pods: int = MOST_PODS
    """Maximum number of pods of each node."""

    @property
    def plain(self) -> bool:
        """True if the nodes have no accelerators, and therefore no taint."""
        return self.gpu is None and self.tpu is None

    @property
    def open(self) -> bool:
        """True if pods without a node selector can run on the nodes."""
        return self.plain and not self.queued

    @property
    def whole(self) -> NodeState:
        """Capacity of an empty node, without the daemons' pods."""
        accelerators = self.tpu.chips_per_host if self.tpu else self.gpus
        return accelerators, self.node.millicores, self.node.memory, self.pods - DAEMON_PODS


def minus_daemon_requests(node: Capacity, kept: Capacity = DAEMON_REQUESTS) -> Capacity:
    """Return a node's capacity without the requests of the cloud's agents."""
    return Capacity(millicores=node.millicores - kept.millicores, memory=node.memory - kept.memory)


Place = int | Problem | None
"""Index of a pod group's pool, why it has none, or None for several pools."""


def unschedulable(pools: Sequence[PoolNodes], groups: Sequence[PodGroup]) -> list[Problem]:
    """Return a problem for each job that does not fit on a cloud platform, alone or after earlier jobs."""
    return [each for each in assign_pools(pools, groups) if isinstance(each, Problem)]


def assign_pools(pools: Sequence[PoolNodes], groups: Sequence[PodGroup]) -> list[str | Problem | None]:
    """Return each job's pool, or why it has none; None on a platform without pools, and for pods of any pool.

    A job gets the pool with the smallest nodes that has capacity. If a pool can be provisioned in several ways, count
    its nodes once. A queued job must fit together with jobs without a queue, but can wait for other queued jobs. A
    suspended job must fit on an empty platform.
    """
    if not pools:
        return [None] * len(groups)
    found, free = _assign_running(pools, groups)
    running = free
    alone: dict[int, list[Nodes]] = {}
    for index, group in enumerate(groups):
        if index in found:
            continue
        place, left = _assign(group, pools, free)
        if group.is_suspended:
            by_itself, alone[group.job] = _assign(group, pools, alone.get(group.job) or _empty_nodes(pools))
            # If it fits next to the others, it gets that pool, so that it can resume there.
            found[index] = by_itself if isinstance(place, Problem) or isinstance(by_itself, Problem) else place
        elif isinstance(place, Problem):
            found[index] = _assign(group, pools, running)[0]
        else:
            found[index], free = place, left
    places = (found[index] for index in range(len(groups)))
    return [pools[each].name if isinstance(each, int) else each for each in places]


def remaining_capacity(pools: Sequence[PoolNodes], groups: Sequence[PodGroup]) -> list[PoolCapacity]:
    """Return each pool's remaining capacity for queued jobs, after jobs without a queue. The system pool is first."""
    _, left = _assign_running(pools, groups)
    found = []
    for pool, nodes in zip(pools, left, strict=True):
        accelerators, millicores, memory, _pods = (
            sum(state[part] * count for state, count in nodes.items()) for part in range(4)
        )
        resource = tpus.RESOURCE if pool.tpu else gpus.RESOURCE if pool.gpu else None
        devices = {resource: accelerators} if resource else {}
        if pool.adapters:
            devices[EFA_RESOURCE] = pool.adapters * accelerators // pool.gpus
        found.append(
            PoolCapacity(
                name=pool.name,
                free=Capacity(millicores=millicores, memory=memory),
                devices=devices,
                node_labels={POOL_LABEL: pool.name},
                on_request=pool.queued,
                taint=resource,
            )
        )
    return sorted(found, key=lambda each: each.name != SYSTEM)


def _problem(code: str, group: PodGroup, key: str, message: str) -> Problem:
    """Return a problem of a job that does not fit, at the key to change."""
    return Problem(code, ("jobs", group.job, *key.split(".")), message)


def _empty_nodes(pools: Sequence[PoolNodes]) -> list[Nodes]:
    """Return the empty nodes of each pool."""
    return [Counter({pool.whole: pool.nodes}) for pool in pools]


def _assign_running(pools: Sequence[PoolNodes], groups: Sequence[PodGroup]) -> tuple[dict[int, Place], list[Nodes]]:
    """Place the jobs that are neither queued nor suspended. Return places and remaining nodes per pool."""
    found: dict[int, Place] = {}
    free = _empty_nodes(pools)
    for index, group in enumerate(groups):
        if group.runs:
            found[index], free = _assign(group, pools, free)
    return found, free


def _assign(group: PodGroup, pools: Sequence[PoolNodes], free: list[Nodes]) -> tuple[Place, list[Nodes]]:
    """Return a job's place, None for several pools, and the remaining nodes of each pool."""
    if group.role:
        return _spread(group, pools, free)
    place = _place(group, pools, free)
    if isinstance(place, Problem):
        return place, free
    return place, [_place_hosts(nodes, group) if index == place else nodes for index, nodes in enumerate(free)]


def _spread(group: PodGroup, pools: Sequence[PoolNodes], free: list[Nodes]) -> tuple[Problem | None, list[Nodes]]:
    """Place pods without a pool. Return a problem or None, and the remaining nodes of each pool.

    The pods are spread over all allowed nodes. The number of pods per node differs by at most one.
    """
    plain_nodes = [
        nodes if pool.plain and not pool.queued else Nodes() for pool, nodes in zip(pools, free, strict=True)
    ]
    most = 1 + min(_hosts_on(state, group) for nodes in plain_nodes for state, count in nodes.items() if count)
    limits = [
        sum(count * min(_hosts_on(state, group), most) for state, count in nodes.items()) for nodes in plain_nodes
    ]
    if sum(limits) < group.count:
        plain = [pool for pool in pools if pool.open]
        largest = max(plain, key=lambda pool: _hosts_on(pool.whole, group))
        return _pods_too_many(group, largest, sum(limits)), free
    left, missing = [], group.count
    for nodes, limit in zip(free, limits, strict=True):
        taken = min(limit, missing)
        left.append(_place_hosts(nodes, replace(group, count=taken)))
        missing -= taken
    return None, left


def _place(group: PodGroup, pools: Sequence[PoolNodes], free: Sequence[Nodes]) -> int | Problem:
    """Return the index of a job's pool, or why the job does not fit."""
    matching = [place for place, pool in enumerate(pools) if _has_accelerators(pool, group)]
    if not matching:
        return _problem("capacity.job.accelerator_not_in_pools", group, "accelerator", _no_pool_message(group, pools))
    large = [place for place in matching if _hosts_on(pools[place].whole, group)]
    if not large:
        return _too_large(group, [pools[place] for place in matching], _accelerator_hint(group, pools))
    room = {place: _free_hosts(free[place], group) for place in large}
    roomy = [place for place in large if room[place] >= group.count]
    if not roomy:
        most = max(large, key=lambda place: room[place])
        return _too_many(group, pools[most], room[most], _accelerator_hint(group, pools))

    def cost(place: int) -> tuple[bool, int, bool, int]:
        pool = pools[place]
        needed = -(-group.count // _hosts_on(pool.whole, group))
        return pool.queued and not group.is_queued, pool.gpus, pool.name == SYSTEM, needed

    best = min(roomy, key=cost)
    if pools[best].queued and not group.is_queued:
        return _problem("capacity.job.queue_missing", group, "queue", _queue_message(pools[best]))
    return best


def _place_hosts(nodes: Nodes, group: PodGroup) -> Nodes:
    """Return the remaining nodes after each host goes to the emptiest node, as the scheduler spreads them."""
    left, hosts = Counter(nodes), group.count
    while hosts:
        state = max(state for state, count in left.items() if count and _hosts_on(state, group))
        moved = min(left[state], hosts)
        accelerators, millicores, memory, pods = state
        less = (
            accelerators - group.accelerators,
            millicores - group.per_pod.millicores,
            memory - group.per_pod.memory,
            pods - 1,
        )
        left[state] -= moved
        left[less] += moved
        hosts -= moved
    return left


def _free_hosts(nodes: Nodes, group: PodGroup) -> int:
    """Return the number of a job's hosts that fit on the nodes."""
    return sum(count * _hosts_on(state, group) for state, count in nodes.items())


def _hosts_on(state: NodeState, group: PodGroup) -> int:
    """Return the number of a job's hosts that fit on one node."""
    accelerators, millicores, memory, pods = state
    hosts = min(millicores // group.per_pod.millicores, memory // group.per_pod.memory, pods)
    return min(hosts, accelerators // group.accelerators) if group.accelerators else hosts


def _has_accelerators(pool: PoolNodes, group: PodGroup) -> bool:
    """Return True if the nodes have the job's accelerators, or have none for a CPU job."""
    if group.accelerator is None:
        return pool.plain
    if group.tpu is not None:
        return pool.tpu == group.tpu
    return pool.gpu == group.accelerator


def _accelerators(pools: Sequence[PoolNodes]) -> str:
    names = [pool.gpu or (pool.tpu and f"{pool.tpu.accelerator_type} ({pool.tpu.topology_label})") for pool in pools]
    return ", ".join(dict.fromkeys(name for name in names if name))


def _accelerator_hint(group: PodGroup, pools: Sequence[PoolNodes]) -> str:
    """Return a hint to add `accelerator` to a job without one, if pools have accelerators."""
    known = "" if group.accelerator else _accelerators(pools)
    hint = f"; the job names no `accelerator`: add `accelerator: NAME` if it is for pools that have one, {known}"
    return hint if known else ""


def _no_pool_message(group: PodGroup, pools: Sequence[PoolNodes]) -> str:
    known = _accelerators(pools)
    remedy = f"write one that there is, {known}," if known else "add a pool that has them"
    asked = (
        " ".join(filter(None, (group.accelerator, group.tpu.topology_label if group.tpu else None)))
        or "nodes without accelerators"
    )
    return f"no pool of the platform has {asked}; {remedy} or change the pools"


def _too_large(group: PodGroup, pools: Sequence[PoolNodes], hint: str) -> Problem:
    best = max(pools, key=lambda pool: (pool.gpus, pool.node.millicores))
    if group.accelerators > max(best.gpus, best.tpu.chips_per_host if best.tpu else 0):
        message = f"each node of pool {best.name} has {best.gpus}; write that or less, or change the pool"
        return _problem("capacity.job.accelerators_too_many", group, "accelerators_per_host", message)
    message = f"{group.per_pod} a host do not fit on a node of pool {best.name}, which has {best.node} for jobs"
    return _problem("capacity.job.host_too_large", group, "resources", f"{message}; ask for less{hint}")


def _too_many(group: PodGroup, pool: PoolNodes, hosts: int, hint: str) -> Problem:
    key, unit, left = group.key, "host", f"has room for {hosts} more such hosts"
    if pool.tpu is not None:
        hosts //= pool.tpu.hosts
        key, unit, left = "slices", "slice", f"has {hosts} such slices left"
    more = f"or give the pool more {'slices' if pool.tpu else 'nodes'}{hint}"
    if not hosts:
        message = f"pool {pool.name} has no room left for such a {unit}; take a job away, {more}"
    else:
        message = f"pool {pool.name} {left}; write {hosts} or less, {more}"
    return _problem("capacity.job.pool_full", group, key, message)


def _pods_too_many(group: PodGroup, largest: PoolNodes, room: int) -> Problem:
    """Return why pods of a job that are not hosts do not fit."""
    if not _hosts_on(largest.whole, group):
        node = f"a node without accelerators; those of pool {largest.name} have {largest.node} for jobs"
        message = f"{group.role} of {group.per_pod} each do not fit on {node}; ask for less, or take larger nodes"
        return _problem("capacity.job.part_too_large", group, "resources", message)
    what = (
        f"{group.count} {group.role} of {group.per_pod} each"
        if group.count > 1
        else f"its {group.role} of {group.per_pod}"
    )
    if room:
        message = f"have room for {room} of {what}, spread evenly; write {room} or less,"
    else:
        message = f"have no room for {what} next to all other pods; remove a job, request less,"
    message = f"the nodes without accelerators {message} or give a pool of them more nodes"
    return _problem("capacity.job.no_room_beside", group, group.key, message)


def _queue_message(pool: PoolNodes) -> str:
    """Return the message for a missing queue.

    https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
    """
    return (
        f"is missing: pool {pool.name} is of queued provisioning, where nodes come when Kueue asks for them; "
        "write `queue: NAME`, and it does before the job starts, or give the pool another capacity"
    )
