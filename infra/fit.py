"""Which nodes of a cloud platform its jobs run on and what those leave, known when the settings are read. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from infra.aws.config import EksConfig
from infra.aws.pools import node_groups
from infra.config import PlatformConfig
from infra.gcp.config import GkeConfig
from infra.gcp.pools import num_nodes, pool_plans, system_machine
from infra.hardware import Capacity, gpus, tpus
from infra.hardware.ec2 import ec2_machine
from infra.hardware.gce import gce_machine
from infra.hardware.machines import eks_allocatable, gke_allocatable
from infra.hardware.tpus import TpuSlice, is_tpu, tpu_slice
from infra.naming import POOL_LABEL
from infra.pool_room import PoolRoom
from infra.scheduling import EFA_RESOURCE

KEPT_FOR_DAEMONS = Capacity(millicores=300, memory=512 * 2**20)
"""What agents of the cloud (network, logs, metrics, devices) ask on every node, measured on no cloud: an estimate."""

SYSTEM = "system"
"""Pool of the nodes that every cluster has."""

NodeState = tuple[int, int, int]
"""What is left on a node: accelerators, millicores, bytes of memory."""
Nodes = Counter[NodeState]
"""How many nodes have that much left."""


@dataclass(frozen=True, kw_only=True)
class Ask:
    """What one job asks of the nodes."""

    hosts: int
    """Number of its hosts."""
    per_host: Capacity
    """CPUs and memory of each."""
    accelerator: str | None
    """GPU model, TPU type or generation; None for a job on CPU."""
    topology: str | None
    """Topology of the TPU slice."""
    accelerators: int
    """GPUs or TPU chips of each host."""
    queue: bool = False
    """Whether a queue admits it: it may wait until those before it are done."""


@dataclass(frozen=True, kw_only=True)
class Misfit:
    """Why a job has no room."""

    job: int
    """Index of the job."""
    key: str
    """Key of the job that has to change."""
    message: str
    """What there is and what to do."""


@dataclass(frozen=True, kw_only=True)
class _Offer:
    """Equal nodes."""

    pool: str
    nodes: int
    node: Capacity
    gpu: str | None = None
    gpus: int = 0
    tpu: TpuSlice | None = None
    adapters: int = 0
    """Elastic Fabric Adapters of each node that are asked as devices."""
    queued: bool = False
    """Whether they come only when a queue asks for them."""

    @property
    def whole(self) -> NodeState:
        """A node that nothing runs on."""
        accelerators = self.tpu.chips_per_host if self.tpu else self.gpus
        return accelerators, self.node.millicores, self.node.memory


def misfits(platform: PlatformConfig, asks: Sequence[Ask]) -> list[Misfit]:
    """The jobs that have no room on a cloud platform, each by itself or else with those before it."""
    return [each for each in places(platform, asks) if isinstance(each, Misfit)]


def places(platform: PlatformConfig, asks: Sequence[Ask]) -> list[str | Misfit | None]:
    """The pool that each job runs in, or why it has none; None on a platform without pools.

    A job is in one pool: of those with room, the one with the smallest nodes. Of several ways to get the same nodes
    one is counted. A job of a queue needs room beside those without one; it may wait for those of queues.
    """
    if not isinstance(platform, GkeConfig | EksConfig):
        return [None] * len(asks)
    offers = _offers(platform)
    found, free = _unqueued(offers, asks)
    unqueued = list(free)
    for index, ask in enumerate(asks):
        if ask.queue:
            place = _place(index, ask, offers, free)
            if isinstance(place, Misfit):
                found[index] = _place(index, ask, offers, unqueued)
            else:
                found[index], free[place] = place, _after(free[place], ask)
    pools = (found[index] for index in range(len(asks)))
    return [each if isinstance(each, Misfit) else offers[each].pool for each in pools]


def rooms(platform: GkeConfig | EksConfig, asks: Sequence[Ask]) -> list[PoolRoom]:
    """What each pool has for the jobs of queues, beside the jobs without one; first the system's nodes.

    A pod that says no pool, such as mpirun's, takes the first that it may and that has enough.
    """
    offers = _offers(platform)
    _, left = _unqueued(offers, asks)
    found = []
    for offer, nodes in zip(offers, left, strict=True):
        accelerators, millicores, memory = (
            sum(state[part] * count for state, count in nodes.items()) for part in range(3)
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


def _unqueued(offers: Sequence[_Offer], asks: Sequence[Ask]) -> tuple[dict[int, int | Misfit], list[Nodes]]:
    """Where each job without a queue goes, and what they leave of each offer."""
    found: dict[int, int | Misfit] = {}
    free = [Counter({offer.whole: offer.nodes}) for offer in offers]
    for index, ask in enumerate(asks):
        if not ask.queue:
            found[index] = place = _place(index, ask, offers, free)
            if not isinstance(place, Misfit):
                free[place] = _after(free[place], ask)
    return found, free


def _place(index: int, ask: Ask, offers: Sequence[_Offer], free: Sequence[Nodes]) -> int | Misfit:
    """Where a job goes."""
    matching = [place for place, offer in enumerate(offers) if _suits(offer, ask)]
    if not matching:
        return Misfit(job=index, key="accelerator", message=_none_has(ask, offers))
    large = [place for place in matching if _hosts_on(offers[place].whole, ask)]
    if not large:
        return _too_large(index, ask, [offers[place] for place in matching], _forgotten(ask, offers))
    room = {place: _room(free[place], ask) for place in large}
    roomy = [place for place in large if room[place] >= ask.hosts]
    if not roomy:
        most = max(large, key=lambda place: room[place])
        return _too_many(index, offers[most], room[most], _forgotten(ask, offers))

    def cost(place: int) -> tuple[bool, int, bool, int]:
        offer = offers[place]
        needed = -(-ask.hosts // _hosts_on(offer.whole, ask))
        return offer.queued and not ask.queue, offer.gpus, offer.pool == SYSTEM, needed

    best = min(roomy, key=cost)
    if offers[best].queued and not ask.queue:
        return Misfit(job=index, key="queue", message=_without_queue(offers[best]))
    return best


def _after(nodes: Nodes, ask: Ask) -> Nodes:
    """What is left when a job's hosts are each on the emptiest node that there is, as the scheduler spreads them."""
    left, hosts = Counter(nodes), ask.hosts
    while hosts:
        state = max(state for state, count in left.items() if count and _hosts_on(state, ask))
        moved = min(left[state], hosts)
        accelerators, millicores, memory = state
        less = (accelerators - ask.accelerators, millicores - ask.per_host.millicores, memory - ask.per_host.memory)
        left[state] -= moved
        left[less] += moved
        hosts -= moved
    return left


def _room(nodes: Nodes, ask: Ask) -> int:
    """How many hosts of a job there is room for."""
    return sum(count * _hosts_on(state, ask) for state, count in nodes.items())


def _hosts_on(state: NodeState, ask: Ask) -> int:
    """How many hosts of a job one node has room for."""
    accelerators, millicores, memory = state
    hosts = min(millicores // ask.per_host.millicores, memory // ask.per_host.memory)
    return min(hosts, accelerators // ask.accelerators) if ask.accelerators else hosts


def _offers(platform: GkeConfig | EksConfig) -> list[_Offer]:
    return _gke(platform) if isinstance(platform, GkeConfig) else _eks(platform)


def _gke(platform: GkeConfig) -> list[_Offer]:
    offers = []
    for pool in platform.pools:
        # Slices, rungs of a ladder and its zones are alike, and rungs and zones stand for each other.
        plan = pool_plans(platform, pool)[0]
        node = _left(gke_allocatable(plan.machine))
        offers.append(
            _Offer(
                pool=pool.name,
                nodes=num_nodes(pool),
                node=node,
                gpu=plan.gpu,
                gpus=plan.gpus,
                tpu=plan.tpu,
                queued=pool.capacity == ("queued",),
            )
        )
    system = _left(gke_allocatable(gce_machine(system_machine(platform))))
    return [*offers, _Offer(pool=SYSTEM, nodes=platform.system_pool.max_nodes, node=system)]


def _eks(platform: EksConfig) -> list[_Offer]:
    offers = [
        _Offer(
            pool=plan.name,
            nodes=plan.nodes,
            node=_left(eks_allocatable(plan.machine)),
            gpu=plan.machine.gpu,
            gpus=plan.machine.gpus,
            adapters=plan.machine.efa_interfaces if plan.efa else 0,
        )
        for plan in node_groups(platform)
    ]
    system = _left(eks_allocatable(ec2_machine(platform.system_pool.machine_type)))
    return [*offers, _Offer(pool=SYSTEM, nodes=platform.system_pool.nodes, node=system)]


def _left(node: Capacity) -> Capacity:
    return Capacity(
        millicores=node.millicores - KEPT_FOR_DAEMONS.millicores, memory=node.memory - KEPT_FOR_DAEMONS.memory
    )


def _suits(offer: _Offer, ask: Ask) -> bool:
    """Whether the nodes have the accelerators of a job, or none for a job on CPU."""
    if ask.accelerator is None:
        return offer.gpu is None and offer.tpu is None
    if is_tpu(ask.accelerator):
        return offer.tpu == tpu_slice(ask.accelerator, ask.topology)
    return offer.gpu == ask.accelerator


def _accelerators(offers: Sequence[_Offer]) -> str:
    names = [
        offer.gpu or (offer.tpu and f"{offer.tpu.accelerator_type} ({offer.tpu.topology_label})") for offer in offers
    ]
    return ", ".join(dict.fromkeys(name for name in names if name))


def _forgotten(ask: Ask, offers: Sequence[_Offer]) -> str:
    """What to add to a job that has no room, and names no accelerator where pools have some."""
    known = "" if ask.accelerator else _accelerators(offers)
    hint = f"; the job names no `accelerator`: add `accelerator: NAME` if it is for pools that have one, {known}"
    return hint if known else ""


def _none_has(ask: Ask, offers: Sequence[_Offer]) -> str:
    known = _accelerators(offers)
    remedy = f"write one that there is, {known}," if known else "add a pool that has them"
    asked = " ".join(filter(None, (ask.accelerator, ask.topology))) or "nodes without accelerators"
    return f"no pool of the platform has {asked}; {remedy} or change the pools"


def _too_large(index: int, ask: Ask, offers: Sequence[_Offer], hint: str) -> Misfit:
    best = max(offers, key=lambda offer: (offer.gpus, offer.node.millicores))
    if ask.accelerators > max(best.gpus, best.tpu.chips_per_host if best.tpu else 0):
        message = f"each node of pool {best.pool} has {best.gpus}; write that or less, or change the pool"
        return Misfit(job=index, key="accelerators_per_host", message=message)
    message = f"{ask.per_host} a host do not fit on a node of pool {best.pool}, which has {best.node} for jobs"
    return Misfit(job=index, key="resources", message=f"{message}; ask for less{hint}")


def _too_many(index: int, offer: _Offer, hosts: int, hint: str) -> Misfit:
    if offer.tpu is not None:
        slices = hosts // offer.tpu.hosts
        message = f"pool {offer.pool} has {slices} such slices left; write less, or change the pool"
        return Misfit(job=index, key="slices", message=message)
    message = f"pool {offer.pool} has room for {hosts} more such hosts; write less, or change the pool{hint}"
    return Misfit(job=index, key="hosts", message=message)


def _without_queue(offer: _Offer) -> str:
    """https://cloud.google.com/kubernetes-engine/docs/how-to/provisioningrequest"""
    return (
        f"is missing: pool {offer.pool} is of queued provisioning, where nodes come when Kueue asks for them; "
        "write `queue: NAME`, and it does before the job starts, or give the pool another capacity"
    )
