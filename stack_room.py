"""Whether a stack's jobs have room on the nodes of its platform, each by itself and beside the others. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from infra.cloud import Cloud
from infra.hardware import HOSTS, Capacity, PodGroup, first_that_does_not_fit, hosts_that_fit, this_machine
from infra.operators.releases import needed_releases
from infra.operators.room import left_for_jobs
from infra.room.fit import Ask, misfits, places, rooms
from infra.room.pool_room import PoolRoom
from infra.settings.problem import UNDEFINED, Problem
from infra.settings.scalars import Section
from workloads.kinds import operators_of
from workloads.spec import JobSpec

Jobs = tuple[JobSpec, ...]


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The pods of a job that are alike."""

    job: int
    """Index of the job."""
    group: PodGroup
    """What they are and request."""
    runs: bool
    """Whether they are there at once: they wait for no queue, and nobody has suspended them."""

    def problem(self, jobs: Jobs, code: str, message: str, key: str = "") -> Problem:
        """What is wrong with them, and where."""
        return _with_value(jobs, Problem(code, ("jobs", self.job, *(key or self.group.key).split(".")), message))


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
    waits = bool(job.queue) or job.suspend
    return [_Part(job=index, group=each, runs=not waits or each.role == "etcd") for each in job.pod_groups]


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
        return [_left(node, nodes, [part.group for part in _parts(jobs) if part.runs])]
    return []


def _asks(jobs: Jobs) -> list[Ask]:
    asks = []
    for part in _parts(jobs):
        job, is_host = jobs[part.job], part.group.role == HOSTS
        ask = Ask(
            job=part.job,
            hosts=part.group.count,
            per_host=part.group.per_pod,
            accelerator=job.accelerator if is_host else None,
            topology=job.topology if is_host else None,
            accelerators=job.accelerators if is_host else 0,
            queue=job.queue is not None and not part.runs,
            suspended=job.suspend and not part.runs,
            key=part.group.key,
            beside="" if is_host else part.group.role,
        )
        asks.append(ask)
    return asks


def shortage(jobs: Jobs, nodes: int, machine: Capacity) -> list[Problem]:
    """The jobs that a local cluster on `machine` has no room for, each by itself or else all that run at once."""
    node = _local_node(jobs, nodes, machine)
    offer = f"{nodes} nodes offer {node} each"
    found = []
    for part in _parts(jobs):
        ask = part.group
        fit = hosts_that_fit(ask.per_pod, node) * nodes
        if part.group.role != HOSTS or ask.count <= fit:
            continue
        if not fit:
            message = f"no node has room for a host of {ask.per_pod}: {offer}; ask for less"
            found.append(part.problem(jobs, "capacity.local.host_too_large", message, "resources"))
            continue
        remedy = f"write `{part.group.key.rpartition('.')[2]}: {fit}` or less, or ask for less"
        message = f"{ask.count} hosts of {ask.per_pod} each do not fit: {offer}, room for {fit}; {remedy}"
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
        late = first_that_does_not_fit([part.group for part in group], node, nodes)
        if late is not None:
            part = group[late]
            message = f"{_said(part, group[:late])}: {nodes} nodes offer {node} each; {_less(part)}"
            return [part.problem(jobs, "capacity.local.no_room_beside", message)]
    return []


def _said(part: _Part, before: Sequence[_Part]) -> str:
    """That a part does not fit beside those before it."""
    own = ["the job's hosts"] if any(each.job == part.job for each in before) else []
    above = ["the jobs above"] if any(each.job != part.job for each in before) else []
    ask = part.group
    many = f"{ask.count} {part.group.role} of {ask.per_pod} each do"
    what = many if part.group.role == HOSTS or ask.count > 1 else f"its {part.group.role} of {ask.per_pod} does"
    return f"{what} not fit{' beside ' if before else ''}{' and '.join(own + above)}"


def _less(part: _Part) -> str:
    return (
        "write less, or ask for less"
        if part.group.key == "parameter_servers" and part.group.count > 1
        else "ask for less"
    )


def _local_node(jobs: Jobs, nodes: int, machine: Capacity) -> Capacity:
    """What each node has for jobs."""
    return left_for_jobs(machine, nodes, len(needed_releases(operators_of(jobs))))


def _left(node: Capacity, num_nodes: int, groups: Sequence[PodGroup]) -> PoolRoom:
    """What equal nodes have left beside some pod groups."""
    millicores = node.millicores * num_nodes - sum(each.count * each.per_pod.millicores for each in groups)
    memory = node.memory * num_nodes - sum(each.count * each.per_pod.memory for each in groups)
    return PoolRoom(pool="nodes", room=Capacity(millicores=millicores, memory=memory))
