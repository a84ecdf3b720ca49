"""Whether a stack's jobs have room on the nodes of its platform, each by itself and beside the others. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from infra.cloud import Cloud
from infra.hardware import Capacity, Demand, first_that_does_not_fit, hosts_that_fit, this_machine
from infra.operators.releases import needed_releases
from infra.operators.room import left_for_jobs
from infra.room.fit import Ask, misfits, places, rooms
from infra.room.pool_room import PoolRoom
from settings.problem import UNDEFINED, Problem
from settings.types import Section
from workloads.needs import operators_of
from workloads.spec import JobSpec

Jobs = tuple[JobSpec, ...]
HOSTS = "hosts"
BESIDE = {
    "mpi-job": (("kind", "launcher"),),
    "mx-job": (("parameter_servers", "parameter servers"), ("kind", "scheduler")),
}
"""What a kind's jobs run beside their hosts, in the order of a job's demands, each after the key that it is from."""


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The pods of a job that are alike."""

    job: int
    """Index of the job."""
    key: str
    """Key of the job that they are from."""
    what: str
    """What they are."""
    demand: Demand
    """What they ask."""
    runs: bool
    """Whether they are there at once: they wait for no queue, and nobody has suspended them."""

    def problem(self, jobs: Jobs, code: str, message: str, key: str = "") -> Problem:
        """What is wrong with them, and where."""
        return _with_value(jobs, Problem(code, ("jobs", self.job, *(key or self.key).split(".")), message))


def _with_value(jobs: Jobs, problem: Problem) -> Problem:
    """Return the problem of a job with the value that is at its path."""
    index, *keys = problem.path[1:]
    value: object = jobs[int(index)]
    for key in keys:
        value = getattr(value, str(key))
    shown = value.model_dump() if isinstance(value, Section) else UNDEFINED if value is None else value
    return replace(problem, value=shown)


def _parts(jobs: Jobs) -> list[_Part]:
    """All that the jobs run."""
    return [part for index, job in enumerate(jobs) for part in _parts_of(index, job)]


def _parts_of(index: int, job: JobSpec) -> list[_Part]:
    hosts = ("elastic.max_hosts" if job.elastic else HOSTS, HOSTS)
    names = (hosts, *BESIDE.get(job.kind, (("rendezvous", "etcd"),)))
    waits = bool(job.queue) or job.suspend
    return [
        _Part(job=index, key=key, what=what, demand=demand, runs=not waits or what == "etcd")
        for demand, (key, what) in zip(job.demands, names, strict=False)
    ]


def without_room(cloud: Cloud, jobs: Jobs) -> list[Problem]:
    """The jobs that a cloud platform has no nodes for."""
    return [_with_value(jobs, each) for each in misfits(cloud.offers(), _asks(jobs))]


def pools_of_jobs(cloud: Cloud, jobs: Jobs) -> dict[str, str | None]:
    """Job -> the pool of a cloud platform that it runs in; None where there are no pools."""
    asks = _asks(jobs)
    pools = zip(asks, places(cloud.offers(), asks), strict=True)
    return {jobs[ask.job].name: pool for ask, pool in pools if not (ask.beside or isinstance(pool, Problem))}


def queue_rooms(cloud: Cloud, jobs: Jobs) -> list[PoolRoom]:
    """What each pool has for the jobs of queues, beside the jobs without one."""
    if offers := cloud.offers():
        return rooms(offers, _asks(jobs))
    if nodes := cloud.nodes_here:
        node = _local_node(jobs, nodes, this_machine())
        return [_left(node, nodes, [part.demand for part in _parts(jobs) if part.runs])]
    return []


def _asks(jobs: Jobs) -> list[Ask]:
    asks = []
    for part in _parts(jobs):
        job, is_host = jobs[part.job], part.what == HOSTS
        ask = Ask(
            job=part.job,
            hosts=part.demand.hosts,
            per_host=part.demand.per_host,
            accelerator=job.accelerator if is_host else None,
            topology=job.topology if is_host else None,
            accelerators=job.accelerators if is_host else 0,
            queue=job.queue is not None and not part.runs,
            suspended=job.suspend and not part.runs,
            key=part.key,
            beside="" if is_host else part.what,
        )
        asks.append(ask)
    return asks


def shortage(jobs: Jobs, nodes: int, machine: Capacity) -> list[Problem]:
    """The jobs that a local cluster on `machine` has no room for, each by itself or else all that run at once."""
    node = _local_node(jobs, nodes, machine)
    offer = f"{nodes} nodes offer {node} each"
    found = []
    for part in _parts(jobs):
        ask = part.demand
        fit = hosts_that_fit(ask.per_host, node) * nodes
        if part.what != HOSTS or ask.hosts <= fit:
            continue
        if not fit:
            message = f"no node has room for a host of {ask.per_host}: {offer}; ask for less"
            found.append(part.problem(jobs, "capacity.local.host_too_large", message, "resources"))
            continue
        remedy = f"write `{part.key.rpartition('.')[2]}: {fit}` or less, or ask for less"
        message = f"{ask.hosts} hosts of {ask.per_host} each do not fit: {offer}, room for {fit}; {remedy}"
        found.append(part.problem(jobs, "capacity.local.hosts_too_many", message))
    return found or _crowded(jobs, nodes, node)


def _crowded(jobs: Jobs, nodes: int, node: Capacity) -> list[Problem]:
    """The first part of the jobs that has no room beside what is there when it runs."""
    parts = _parts(jobs)
    running = [part for part in parts if part.runs]
    # Jobs of queues may have to wait for each other: each needs room with all that does not wait.
    groups = [running]
    for index, job in enumerate(jobs):
        waiting = [part for part in parts if part.job == index and not part.runs]
        if job.queue:
            groups.append([*running, *waiting])
        elif job.suspend:
            groups.append([part for part in parts if part.job == index])
    for group in groups:
        late = first_that_does_not_fit([part.demand for part in group], node, nodes)
        if late is not None:
            part = group[late]
            message = f"{_said(part, group[:late])}: {nodes} nodes offer {node} each; {_less(part)}"
            return [part.problem(jobs, "capacity.local.no_room_beside", message)]
    return []


def _said(part: _Part, before: Sequence[_Part]) -> str:
    """That a part does not fit beside those before it."""
    own = ["the job's hosts"] if any(each.job == part.job for each in before) else []
    above = ["the jobs above"] if any(each.job != part.job for each in before) else []
    ask = part.demand
    many = f"{ask.hosts} {part.what} of {ask.per_host} each do"
    what = many if part.what == HOSTS or ask.hosts > 1 else f"its {part.what} of {ask.per_host} does"
    return f"{what} not fit{' beside ' if before else ''}{' and '.join(own + above)}"


def _less(part: _Part) -> str:
    return (
        "write less, or ask for less" if part.key == "parameter_servers" and part.demand.hosts > 1 else "ask for less"
    )


def _local_node(jobs: Jobs, nodes: int, machine: Capacity) -> Capacity:
    """What each node has for jobs."""
    return left_for_jobs(machine, nodes, len(needed_releases(operators_of(jobs))))


def _left(node: Capacity, num_nodes: int, demands: Sequence[Demand]) -> PoolRoom:
    """What equal nodes have left beside some demands."""
    millicores = node.millicores * num_nodes - sum(each.hosts * each.per_host.millicores for each in demands)
    memory = node.memory * num_nodes - sum(each.hosts * each.per_host.memory for each in demands)
    return PoolRoom(pool="nodes", room=Capacity(millicores=millicores, memory=memory))
