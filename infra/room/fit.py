"""Capacity planning: assignment of jobs to a cloud platform's pools, from the settings alone. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from infra.hardware import Capacity, gpus, tpus
from infra.hardware.tpus import is_tpu, tpu_slice
from infra.naming import POOL_LABEL
from infra.room.offers import SYSTEM, Nodes, NodeState, Offer
from infra.room.pool_room import PoolRoom
from infra.scheduling import EFA_RESOURCE
from settings.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Ask:
    """Pod group: N identical pods of a job and the requests of each. A job's hosts are such a group."""

    job: int
    """Index of the job."""
    hosts: int
    """Number of pods."""
    per_host: Capacity
    """CPUs and memory of each pod."""
    accelerator: str | None
    """GPU model, TPU type or TPU generation, or None for CPU pods."""
    topology: str | None
    """Topology of the TPU slice."""
    accelerators: int
    """GPUs or TPU chips of each host."""
    queue: bool = False
    """True if a queue admits the job, which can then wait for earlier jobs."""
    suspended: bool = False
    """True if the job is suspended. It must fit on an empty platform, but not together with other jobs."""
    key: str = "hosts"
    """Key of the job's settings that sets the number of pods."""
    beside: str = ""
    """Name of pods that are not hosts, such as `parameter servers`. Empty for hosts.

    These pods can run on any nodes without accelerators, also in several pools.
    """


def misfits(offers: Sequence[Offer], asks: Sequence[Ask]) -> list[Problem]:
    """Return a problem for each job that does not fit on a cloud platform, alone or with earlier jobs."""
    return [each for each in places(offers, asks) if isinstance(each, Problem)]


def places(offers: Sequence[Offer], asks: Sequence[Ask]) -> list[str | Problem | None]:
    """Return each pod group's pool or problem. None stands for a platform without pools, or for pods of any pool.

    A job gets the pool with the smallest nodes that has capacity. If a pool can be provisioned in several ways, count
    its nodes once. A queued job must fit together with jobs without a queue, but can wait for other queued jobs. A
    suspended job must fit on an empty platform.
    """
    if not offers:
        return [None] * len(asks)
    found, free = _running(offers, asks)
    running = free
    alone: dict[int, list[Nodes]] = {}
    for index, ask in enumerate(asks):
        if index in found:
            continue
        place, left = _settled(ask, offers, free)
        if ask.suspended:
            by_itself, alone[ask.job] = _settled(ask, offers, alone.get(ask.job) or _whole(offers))
            # Prefer the pool in which the job also fits together with the others, so that it can resume there.
            found[index] = by_itself if isinstance(place, Problem) or isinstance(by_itself, Problem) else place
        elif isinstance(place, Problem):
            found[index] = _settled(ask, offers, running)[0]
        else:
            found[index], free = place, left
    pools = (found[index] for index in range(len(asks)))
    return [offers[each].pool if isinstance(each, int) else each for each in pools]


def rooms(offers: Sequence[Offer], asks: Sequence[Ask]) -> list[PoolRoom]:
    """Return each pool's remaining capacity for queued jobs, after jobs without a queue.

    The system pool comes first.
    """
    _, left = _running(offers, asks)
    found = []
    for offer, nodes in zip(offers, left, strict=True):
        accelerators, millicores, memory, _pods = (
            sum(state[part] * count for state, count in nodes.items()) for part in range(4)
        )
        resource = tpus.RESOURCE if offer.tpu else gpus.RESOURCE if offer.gpu else None
        devices = {resource: accelerators} if resource else {}
        if offer.adapters:
            devices[EFA_RESOURCE] = offer.adapters * accelerators // offer.gpus
        found.append(
            PoolRoom(
                pool=offer.pool,
                room=Capacity(millicores=millicores, memory=memory),
                devices=devices,
                node_labels={POOL_LABEL: offer.pool},
                on_request=offer.queued,
                taint=resource,
            )
        )
    return sorted(found, key=lambda each: each.pool != SYSTEM)


def _problem(code: str, ask: Ask, key: str, message: str) -> Problem:
    """Return the problem of a job that does not fit, at the key to change."""
    return Problem(code, ("jobs", ask.job, *key.split(".")), message)


def _whole(offers: Sequence[Offer]) -> list[Nodes]:
    """Return the empty nodes of each offer."""
    return [Counter({offer.whole: offer.nodes}) for offer in offers]


def _running(offers: Sequence[Offer], asks: Sequence[Ask]) -> tuple[dict[int, int | Problem | None], list[Nodes]]:
    """Assign the jobs that are neither queued nor suspended. Return pools and remaining nodes per offer."""
    found: dict[int, int | Problem | None] = {}
    free = _whole(offers)
    for index, ask in enumerate(asks):
        if not (ask.queue or ask.suspended):
            found[index], free = _settled(ask, offers, free)
    return found, free


def _settled(ask: Ask, offers: Sequence[Offer], free: list[Nodes]) -> tuple[int | Problem | None, list[Nodes]]:
    """Assign a pod group. Return its offer or problem, None for several pools, and the remaining nodes per offer."""
    if ask.beside:
        return _spread(ask, offers, free)
    place = _place(ask, offers, free)
    if isinstance(place, Problem):
        return place, free
    return place, [_after(nodes, ask) if index == place else nodes for index, nodes in enumerate(free)]


def _spread(ask: Ask, offers: Sequence[Offer], free: list[Nodes]) -> tuple[Problem | None, list[Nodes]]:
    """Assign pods of any pool. Return a problem or None, and the remaining nodes per offer.

    The pods are spread over all allowed nodes. The number of pods per node differs by at most one.
    """
    plain_nodes = [
        nodes if offer.plain and not offer.queued else Nodes() for offer, nodes in zip(offers, free, strict=True)
    ]
    most = 1 + min(_hosts_on(state, ask) for nodes in plain_nodes for state, count in nodes.items() if count)
    rooms_of = [
        sum(count * min(_hosts_on(state, ask), most) for state, count in nodes.items()) for nodes in plain_nodes
    ]
    if sum(rooms_of) < ask.hosts:
        plain = [offer for offer in offers if offer.open]
        largest = max(plain, key=lambda offer: _hosts_on(offer.whole, ask))
        return _no_room_beside(ask, largest, sum(rooms_of)), free
    left, missing = [], ask.hosts
    for nodes, room in zip(free, rooms_of, strict=True):
        taken = min(room, missing)
        left.append(_after(nodes, replace(ask, hosts=taken)))
        missing -= taken
    return None, left


def _place(ask: Ask, offers: Sequence[Offer], free: Sequence[Nodes]) -> int | Problem:
    """Return the index of a job's offer, or its problem."""
    matching = [place for place, offer in enumerate(offers) if _suits(offer, ask)]
    if not matching:
        return _problem("capacity.job.accelerator_not_in_pools", ask, "accelerator", _none_has(ask, offers))
    large = [place for place in matching if _hosts_on(offers[place].whole, ask)]
    if not large:
        return _too_large(ask, [offers[place] for place in matching], _forgotten(ask, offers))
    room = {place: _room(free[place], ask) for place in large}
    roomy = [place for place in large if room[place] >= ask.hosts]
    if not roomy:
        most = max(large, key=lambda place: room[place])
        return _too_many(ask, offers[most], room[most], _forgotten(ask, offers))

    def cost(place: int) -> tuple[bool, int, bool, int]:
        offer = offers[place]
        needed = -(-ask.hosts // _hosts_on(offer.whole, ask))
        return offer.queued and not ask.queue, offer.gpus, offer.pool == SYSTEM, needed

    best = min(roomy, key=cost)
    if offers[best].queued and not ask.queue:
        return _problem("capacity.job.queue_missing", ask, "queue", _without_queue(offers[best]))
    return best


def _after(nodes: Nodes, ask: Ask) -> Nodes:
    """Return the remaining nodes after each host goes to the emptiest node, as the scheduler does."""
    left, hosts = Counter(nodes), ask.hosts
    while hosts:
        state = max(state for state, count in left.items() if count and _hosts_on(state, ask))
        moved = min(left[state], hosts)
        accelerators, millicores, memory, pods = state
        less = (
            accelerators - ask.accelerators,
            millicores - ask.per_host.millicores,
            memory - ask.per_host.memory,
            pods - 1,
        )
        left[state] -= moved
        left[less] += moved
        hosts -= moved
    return left


def _room(nodes: Nodes, ask: Ask) -> int:
    """Return the number of a job's hosts that fit on the nodes."""
    return sum(count * _hosts_on(state, ask) for state, count in nodes.items())


def _hosts_on(state: NodeState, ask: Ask) -> int:
    """Return the number of a job's hosts that fit on one node."""
    accelerators, millicores, memory, pods = state
    hosts = min(millicores // ask.per_host.millicores, memory // ask.per_host.memory, pods)
    return min(hosts, accelerators // ask.accelerators) if ask.accelerators else hosts


def _suits(offer: Offer, ask: Ask) -> bool:
    """Return True if the nodes have the job's accelerators, or no accelerators for a CPU job."""
    if ask.accelerator is None:
        return offer.plain
    if is_tpu(ask.accelerator):
        return offer.tpu == tpu_slice(ask.accelerator, ask.topology)
    return offer.gpu == ask.accelerator


def _accelerators(offers: Sequence[Offer]) -> str:
    names = [
        offer.gpu or (offer.tpu and f"{offer.tpu.accelerator_type} ({offer.tpu.topology_label})") for offer in offers
    ]
    return ", ".join(dict.fromkeys(name for name in names if name))


def _forgotten(ask: Ask, offers: Sequence[Offer]) -> str:
    """Return a hint to set `accelerator`, for a job without one on a platform with accelerators."""
    known = "" if ask.accelerator else _accelerators(offers)
    hint = f"; the job names no `accelerator`: add `accelerator: NAME` if it is for pools that have one, {known}"
    return hint if known else ""


def _none_has(ask: Ask, offers: Sequence[Offer]) -> str:
    known = _accelerators(offers)
    remedy = f"write one that there is, {known}," if known else "add a pool that has them"
    asked = " ".join(filter(None, (ask.accelerator, ask.topology))) or "nodes without accelerators"
    return f"no pool of the platform has {asked}; {remedy} or change the pools"


def _too_large(ask: Ask, offers: Sequence[Offer], hint: str) -> Problem:
    best = max(offers, key=lambda offer: (offer.gpus, offer.node.millicores))
    if ask.accelerators > max(best.gpus, best.tpu.chips_per_host if best.tpu else 0):
        message = f"each node of pool {best.pool} has {best.gpus}; write that or less, or change the pool"
        return _problem("capacity.job.accelerators_too_many", ask, "accelerators_per_host", message)
    message = f"{ask.per_host} a host do not fit on a node of pool {best.pool}, which has {best.node} for jobs"
    return _problem("capacity.job.host_too_large", ask, "resources", f"{message}; ask for less{hint}")


def _too_many(ask: Ask, offer: Offer, hosts: int, hint: str) -> Problem:
    key, unit, left = ask.key, "host", f"has room for {hosts} more such hosts"
    if offer.tpu is not None:
        hosts //= offer.tpu.hosts
        key, unit, left = "slices", "slice", f"has {hosts} such slices left"
    more = f"or give the pool more {'slices' if offer.tpu else 'nodes'}{hint}"
    if not hosts:
        message = f"pool {offer.pool} has no room left for such a {unit}; take a job away, {more}"
    else:
        message = f"pool {offer.pool} {left}; write {hosts} or less, {more}"
    return _problem("capacity.job.pool_full", ask, key, message)


def _no_room_beside(ask: Ask, largest: Offer, room: int) -> Problem:
    """Return the problem of pods that are not hosts."""
    if not _hosts_on(largest.whole, ask):
        node = f"a node without accelerators; those of pool {largest.pool} have {largest.node} for jobs"
        message = f"{ask.beside} of {ask.per_host} each do not fit on {node}; ask for less, or take larger nodes"
        return _problem("capacity.job.part_too_large", ask, "resources", message)
    what = (
        f"{ask.hosts} {ask.beside} of {ask.per_host} each" if ask.hosts > 1 else f"its {ask.beside} of {ask.per_host}"
    )
    if room:
        message = f"have room for {room} of {what}, spread evenly; write {room} or less,"
    else:
        message = f"have no room for {what} beside all else; take a job away, ask for less,"
    message = f"the nodes without accelerators {message} or give a pool of them more nodes"
    return _problem("capacity.job.no_room_beside", ask, ask.key, message)


def _without_queue(offer: Offer) -> str:
    """Return the message for a missing queue.

    https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest
    """
    return (
        f"is missing: pool {offer.pool} is of queued provisioning, where nodes come when Kueue asks for them; "
        "write `queue: NAME`, and it does before the job starts, or give the pool another capacity"
    )
