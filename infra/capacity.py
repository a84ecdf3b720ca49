"""Capacity planning from the settings alone: the nodes of each pool, and the pools that jobs fit in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from infra.hardware import Capacity, PodGroup, PoolCapacity, gpus, tpus
from infra.hardware.node_capacity import MAX_PODS
from infra.hardware.tpus import TpuSlice
from infra.naming import POOL_LABEL
from settings.problem import Problem
from settings.text import counted

EFA_RESOURCE = "vpc.amazonaws.com/efa"
"""Resource name of EFA adapters: https://github.com/aws/eks-charts/tree/master/stable/aws-efa-k8s-device-plugin"""

SYSTEM = "system"
"""Name of the pool for system pods, which every cluster on GKE and EKS has."""

DAEMON_PODS = 10
"""Assumed number of agent pods on a node.

EKS has up to eight: network, proxy, identity, disks, health, DCGM, GPUs, EFA.
"""

NodeState = tuple[int, int, int, int]
"""Remaining capacity of a node: accelerators, millicores, bytes of memory, pods."""
Nodes = Counter[NodeState]
"""Number of nodes by remaining capacity."""


@dataclass(frozen=True, kw_only=True)
class PoolNodes:
    """Identical nodes of a pool."""

    name: str
    nodes: int
    """Maximum number of nodes."""
    node: Capacity
    """CPUs and memory that jobs can use on each node."""
    gpu: str | None = None
    gpus: int = 0
    """GPUs of each node."""
    tpu: TpuSlice | None = None
    """TPU slice that the nodes are hosts of."""
    adapters: int = 0
    """Elastic Fabric Adapters of each node, which pods request as devices."""
    queued: bool = False
    """True if the cloud creates nodes only when a queue requests them."""
    has_fallback: bool = False
    """True if the nodes have the taint of a compute class, which orders the pool's provisioning models."""
    pods: int = MAX_PODS
    """Maximum number of pods of each node."""
    zones: tuple[str, ...] = ()
    keeps_idle: bool = True
    """True if nodes without pods stay until the settings change or the stack is destroyed."""

    @property
    def is_cpu_only(self) -> bool:
        """True if the nodes have no accelerators, and therefore no taint of the cloud."""
        return self.gpu is None and self.tpu is None

    @property
    def accepts_any_pod(self) -> bool:
        """True if pods without a node selector can run on the nodes."""
        return self.is_cpu_only and not self.queued and not self.has_fallback

    @property
    def empty_node(self) -> NodeState:
        """Remaining capacity of a node that runs only the cloud's agents."""
        accelerators = self.tpu.chips_per_host if self.tpu else self.gpus
        return accelerators, self.node.millicores, self.node.memory, self.pods - DAEMON_PODS


Assignment = int | Problem | None
"""Pool index of a pod group, or a problem if no pool fits. None if several pools can run the group."""


def unschedulable(pools: Sequence[PoolNodes], groups: Sequence[PodGroup]) -> list[Problem]:
    """Return a problem for each job that does not fit on a cloud platform, alone or next to other jobs."""
    return [result for result in assign_pools(pools, groups) if isinstance(result, Problem)]


def assign_pools(pools: Sequence[PoolNodes], groups: Sequence[PodGroup]) -> list[str | Problem | None]:
    """Return the pool of each pod group, or the problem if it does not fit.

    The result is None for each group on a platform without pools, and for pods that several pools can run. Of the pools
    with capacity for all hosts, a job gets the one with the fewest GPUs per node. Ties go to a pool other than the
    system pool, then to the pool on which the job needs the fewest nodes. A job without a queue never gets a pool with
    queued provisioning.

    A queued job must fit together with jobs without a queue, but can wait for other queued jobs. A suspended job must
    fit on an empty platform.
    """
    if not pools:
        return [None] * len(groups)
    assigned, free = _assign_running(pools, groups)
    free_next_to_running = free
    free_for_suspended: dict[int, list[Nodes]] = {}
    for index, group in enumerate(groups):
        if index in assigned:
            continue
        result, remaining = _assign(group, pools, free)
        if group.is_suspended:
            empty = free_for_suspended.get(group.job) or _empty_nodes(pools)
            result_alone, free_for_suspended[group.job] = _assign(group, pools, empty)
            # If the job also fits next to the others, assign that pool, so that it can resume there.
            fits_with_others = not (isinstance(result, Problem) or isinstance(result_alone, Problem))
            assigned[index] = result if fits_with_others else result_alone
        elif isinstance(result, Problem):
            assigned[index] = _assign(group, pools, free_next_to_running)[0]
        else:
            assigned[index], free = result, remaining
    results = (assigned[index] for index in range(len(groups)))
    return [pools[result].name if isinstance(result, int) else result for result in results]


def remaining_capacity(pools: Sequence[PoolNodes], groups: Sequence[PodGroup]) -> list[PoolCapacity]:
    """Return each pool's capacity minus the requests of the jobs that run. The system pool is first."""
    _, free = _assign_running(pools, groups)
    capacities = []
    for pool, nodes in zip(pools, free, strict=True):
        accelerators, millicores, memory, _pods = (
            sum(state[part] * count for state, count in nodes.items()) for part in range(4)
        )
        resource = tpus.RESOURCE if pool.tpu else gpus.RESOURCE if pool.gpu else None
        devices = {resource: accelerators} if resource else {}
        if pool.adapters:
            devices[EFA_RESOURCE] = pool.adapters * accelerators // pool.gpus
        capacities.append(
            PoolCapacity(
                name=pool.name,
                free=Capacity(millicores=millicores, memory=memory),
                devices=devices,
                node_labels={POOL_LABEL: pool.name},
                on_request=pool.queued,
                taint=resource,
            )
        )
    return sorted(capacities, key=lambda capacity: capacity.name != SYSTEM)


def _problem(code: str, group: PodGroup, key: str, message: str) -> Problem:
    """Return a problem of a job that does not fit, at the key to change."""
    return Problem(code, ("jobs", group.job, *key.split(".")), message)


def _empty_nodes(pools: Sequence[PoolNodes]) -> list[Nodes]:
    return [Counter({pool.empty_node: pool.nodes}) for pool in pools]


def _assign_running(
    pools: Sequence[PoolNodes], groups: Sequence[PodGroup]
) -> tuple[dict[int, Assignment], list[Nodes]]:
    """Assign the jobs that are neither queued nor suspended. Return their assignments and each pool's free nodes."""
    assigned: dict[int, Assignment] = {}
    free = _empty_nodes(pools)
    for index, group in enumerate(groups):
        if group.runs:
            assigned[index], free = _assign(group, pools, free)
    return assigned, free


def _assign(group: PodGroup, pools: Sequence[PoolNodes], free: list[Nodes]) -> tuple[Assignment, list[Nodes]]:
    """Return a pod group's assignment, and the capacity that each pool's nodes then have left."""
    if group.role:
        return _spread(group, pools, free)
    result = _best_pool(group, pools, free)
    if isinstance(result, Problem):
        return result, free
    return result, [_place_hosts(nodes, group) if index == result else nodes for index, nodes in enumerate(free)]


def _spread(group: PodGroup, pools: Sequence[PoolNodes], free: list[Nodes]) -> tuple[Problem | None, list[Nodes]]:
    """Spread pods that are not hosts over all nodes without accelerators.

    Return a problem or None, and the capacity that each pool's nodes then have left.
    """
    cpu_nodes = [nodes if pool.accepts_any_pod else Nodes() for pool, nodes in zip(pools, free, strict=True)]
    limits = _spread_limits(cpu_nodes, group)
    if sum(limits) < group.count:
        cpu_pools = [pool for pool in pools if pool.accepts_any_pod]
        largest = max(cpu_pools, key=lambda pool: _hosts_on(pool.empty_node, group))
        return _pods_too_many(group, largest, sum(limits)), free
    remaining, unplaced = [], group.count
    for nodes, limit in zip(free, limits, strict=True):
        count = min(limit, unplaced)
        remaining.append(_place_hosts(nodes, replace(group, count=count)))
        unplaced -= count
    return None, remaining


def _spread_limits(pools: Sequence[Nodes], group: PodGroup) -> list[int]:
    """Return how many of a group's pods each pool's nodes can run, if the pods may use all nodes.

    The pods have `maxSkew: 1`. A node can therefore run at most one pod more than the node with the least capacity:
    https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/
    """
    max_per_node = 1 + min(_hosts_on(state, group) for nodes in pools for state, count in nodes.items() if count)
    return [
        sum(count * min(_hosts_on(state, group), max_per_node) for state, count in nodes.items()) for nodes in pools
    ]


def _best_pool(group: PodGroup, pools: Sequence[PoolNodes], free: Sequence[Nodes]) -> int | Problem:
    """Return the index of the most suitable pool for a job, or the problem if no pool fits."""
    matching = [index for index, pool in enumerate(pools) if _has_accelerators(pool, group)]
    if not matching:
        return _problem("capacity.job.accelerator_not_in_pools", group, "accelerator", _no_pool_message(group, pools))
    large_enough = [index for index in matching if _hosts_on(pools[index].empty_node, group)]
    if not large_enough:
        return _too_large(group, [pools[index] for index in matching], _accelerator_hint(group, pools))
    free_hosts = {index: _spread_limits([free[index]], group)[0] for index in large_enough}
    candidates = [index for index in large_enough if free_hosts[index] >= group.count]
    if not candidates:
        freest = max(large_enough, key=lambda index: free_hosts[index])
        return _too_many(group, pools[freest], free_hosts[freest], _accelerator_hint(group, pools))

    def preference(index: int) -> tuple[bool, int, bool, int]:
        pool = pools[index]
        num_nodes = -(-group.count // _hosts_on(pool.empty_node, group))
        return pool.queued and not group.is_queued, pool.gpus, pool.name == SYSTEM, num_nodes

    best = min(candidates, key=preference)
    if pools[best].queued and not group.is_queued:
        return _problem("capacity.job.queue_missing", group, "queue", _queue_message(pools[best]))
    return best


def _place_hosts(nodes: Nodes, group: PodGroup) -> Nodes:
    """Place each host as the scheduler does. Return the capacity that the nodes have left.

    The scheduler prefers the nodes with the fewest hosts of the group, and of these nodes the emptiest.
    """
    free = Counter({(0, state): count for state, count in nodes.items()})
    hosts = group.count
    while hosts:
        with_capacity = [key for key, count in free.items() if count and _hosts_on(key[1], group)]
        fewest = min(placed for placed, _ in with_capacity)
        state = max(state for placed, state in with_capacity if placed == fewest)
        num_nodes = min(free[fewest, state], hosts)
        accelerators, millicores, memory, pods = state
        state_with_host = (
            accelerators - group.accelerators,
            millicores - group.per_pod.millicores,
            memory - group.per_pod.memory,
            pods - 1,
        )
        free[fewest, state] -= num_nodes
        free[fewest + 1, state_with_host] += num_nodes
        hosts -= num_nodes
    remaining: Nodes = Counter()
    for (_, state), count in free.items():
        remaining[state] += count
    return remaining


def _hosts_on(state: NodeState, group: PodGroup) -> int:
    accelerators, millicores, memory, pods = state
    hosts = min(millicores // group.per_pod.millicores, memory // group.per_pod.memory, pods)
    return min(hosts, accelerators // group.accelerators) if group.accelerators else hosts


def _has_accelerators(pool: PoolNodes, group: PodGroup) -> bool:
    """Return True if the nodes have the job's accelerators, or have none for a CPU job."""
    if group.accelerator is None:
        return pool.is_cpu_only
    if group.tpu is not None:
        return pool.tpu == group.tpu
    return pool.gpu == group.accelerator


def _accelerator_names(pools: Sequence[PoolNodes]) -> str:
    names = [pool.gpu or (pool.tpu and f"{pool.tpu.accelerator_type} ({pool.tpu.topology_label})") for pool in pools]
    return ", ".join(dict.fromkeys(name for name in names if name))


def _accelerator_hint(group: PodGroup, pools: Sequence[PoolNodes]) -> str:
    """Return a hint to add `accelerator` to a job without one, if pools have accelerators."""
    names = "" if group.accelerator else _accelerator_names(pools)
    return f"; if the job needs an accelerator, add `accelerator:` with one of {names}" if names else ""


def _no_pool_message(group: PodGroup, pools: Sequence[PoolNodes]) -> str:
    names = _accelerator_names(pools)
    remedy = f"write one of {names}," if names else "add a pool that has them"
    requested = (
        " ".join(filter(None, (group.accelerator, group.tpu.topology_label if group.tpu else None)))
        or "nodes without accelerators"
    )
    return f"no pool of the platform has {requested}; {remedy} or change the pools"


def _too_large(group: PodGroup, pools: Sequence[PoolNodes], hint: str) -> Problem:
    largest = max(pools, key=lambda pool: (pool.gpus, pool.node.millicores))
    if group.accelerators > max(largest.gpus, largest.tpu.chips_per_host if largest.tpu else 0):
        message = (
            f"each node of pool {largest.name} has {largest.gpus} GPUs; write {largest.gpus} or less, "
            "or change the pool"
        )
        return _problem("capacity.job.accelerators_too_many", group, "accelerators_per_host", message)
    message = f"a host of {group.per_pod} does not fit on a node of pool {largest.name}, which has {largest.node}"
    return _problem("capacity.job.host_too_large", group, "resources", f"{message} for jobs; request less{hint}")


def _too_many(group: PodGroup, pool: PoolNodes, hosts: int, hint: str) -> Problem:
    key, unit, count = group.key, "host", hosts
    if pool.tpu is not None:
        key, unit, count = "slices", "slice", hosts // pool.tpu.hosts
    more = f"or give the pool more {'slices' if pool.tpu else 'nodes'}{hint}"
    if not count:
        message = f"pool {pool.name} is full, without capacity for another such {unit}; remove a job, {more}"
    else:
        message = (
            f"pool {pool.name} has capacity for only {counted(count, f'such {unit}')}; write {count} or less, {more}"
        )
    return _problem("capacity.job.pool_full", group, key, message)


def _pods_too_many(group: PodGroup, largest: PoolNodes, capacity: int) -> Problem:
    """Return the problem of pods that are not hosts and do not fit. `capacity` is the number of pods that fit."""
    is_several = group.count > 1
    if not _hosts_on(largest.empty_node, group):
        pods = f"{group.role} of {group.per_pod} each do" if is_several else f"its {group.role} of {group.per_pod} does"
        node = f"a node without accelerators; nodes of pool {largest.name} have {largest.node} for jobs"
        message = f"{pods} not fit on {node}; request less, or use larger nodes"
        return _problem("capacity.job.part_too_large", group, "resources", message)
    pods = f"{group.count} {group.role}" if is_several else f"its {group.role}"
    pods += f" of {group.per_pod}{' each' if is_several else ''}"
    if capacity:
        message = f"have capacity for only {capacity} of {pods}, spread evenly; write {capacity} or less,"
    else:
        message = f"have no capacity for {pods} next to all other pods; remove a job, request less,"
    message = f"the nodes without accelerators {message} or give a pool without accelerators more nodes"
    return _problem("capacity.job.no_capacity_left", group, group.key, message)


def _queue_message(pool: PoolNodes) -> str:
    """Return the message for a missing queue.

    https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
    """
    return (
        f"is missing: pool {pool.name} uses queued provisioning, which creates nodes only when Kueue requests them; "
        "write `queue: NAME`, or change the pool's `capacity`"
    )


def in_pool(pool: str | None) -> dict[str, str]:
    """Return the node selector of a pool; empty for any pool."""
    return {} if pool is None else {POOL_LABEL: pool}


def tolerate(key: str) -> dict[str, str]:
    """Return a toleration of a NoSchedule taint with any value."""
    return {"key": key, "operator": "Exists", "effect": "NoSchedule"}
