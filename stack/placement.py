"""Capacity planning of a stack: problems of jobs that do not fit on its platform, alone or together. No Pulumi."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from infra.capacity import assign_pools, remaining_capacity, unschedulable
from infra.cloud import Cloud
from infra.hardware import Capacity, PodGroup, PoolCapacity, first_that_does_not_fit, hosts_that_fit, this_machine
from infra.operators.releases import left_for_jobs, needed_releases
from settings.problem import UNDEFINED, Problem
from settings.types import Section
from workloads.kinds import operators_of
from workloads.spec import JobSpec

Jobs = tuple[JobSpec, ...]


def _with_value(jobs: Jobs, problem: Problem) -> Problem:
    """Return the problem of a job with the value that is at its path."""
    index, *keys = problem.path[1:]
    value: object = jobs[int(index)]
    for key in keys:
        value = getattr(value, str(key))
    shown = value.model_dump() if isinstance(value, Section) else UNDEFINED if value is None else value
    return replace(problem, value=shown)


def _problem(jobs: Jobs, group: PodGroup, code: str, message: str, key: str = "") -> Problem:
    """Return a problem of a pod group, at the key that sets its number or at another key of its job."""
    return _with_value(jobs, Problem(code, ("jobs", group.job, *(key or group.key).split(".")), message))


def _groups(jobs: Jobs) -> list[PodGroup]:
    """Return the pods of all jobs."""
    return [replace(group, job=index) for index, job in enumerate(jobs) for group in job.pod_groups]


def unschedulable_jobs(cloud: Cloud, jobs: Jobs) -> list[Problem]:
    """Return a problem for each job that a cloud platform has no nodes for."""
    return [_with_value(jobs, each) for each in unschedulable(cloud.pool_nodes(), _groups(jobs))]


def pools_of_jobs(cloud: Cloud, jobs: Jobs) -> dict[str, str | None]:
    """Return job -> its pool of a cloud platform; None where there are no pools."""
    groups = _groups(jobs)
    pools = zip(groups, assign_pools(cloud.pool_nodes(), groups), strict=True)
    return {jobs[group.job].name: pool for group, pool in pools if not (group.role or isinstance(pool, Problem))}


def queue_capacity(cloud: Cloud, jobs: Jobs) -> list[PoolCapacity]:
    """Return what each pool has for the jobs of queues, after the jobs without one."""
    if pool_nodes := cloud.pool_nodes():
        return remaining_capacity(pool_nodes, _groups(jobs))
    if nodes := cloud.nodes_here:
        node = _local_node(jobs, nodes, this_machine())
        return [_left(node, nodes, [group for group in _groups(jobs) if group.runs])]
    return []


def local_capacity_problems(jobs: Jobs, nodes: int, machine: Capacity) -> list[Problem]:
    """Return the jobs that do not fit on a local cluster on `machine`, each alone or else all that run at once."""
    node = _local_node(jobs, nodes, machine)
    offer = f"{nodes} nodes offer {node} each"
    found = []
    for group in _groups(jobs):
        fit = hosts_that_fit(group.per_pod, node) * nodes
        if group.role or group.count <= fit:
            continue
        if not fit:
            message = f"no node has room for a host of {group.per_pod}: {offer}; ask for less"
            found.append(_problem(jobs, group, "capacity.local.host_too_large", message, "resources"))
            continue
        remedy = f"write `{group.key.rpartition('.')[2]}: {fit}` or less, or ask for less"
        message = f"{group.count} hosts of {group.per_pod} each do not fit: {offer}, room for {fit}; {remedy}"
        found.append(_problem(jobs, group, "capacity.local.hosts_too_many", message))
    return found or _together(jobs, nodes, node)


def _together(jobs: Jobs, nodes: int, node: Capacity) -> list[Problem]:
    """Return a problem for the first pod group that does not fit next to those that run when it does."""
    groups = _groups(jobs)
    running = [group for group in groups if group.runs]
    # Jobs of queues may have to wait for each other: each needs room with all that does not wait.
    together = [running]
    for index, job in enumerate(jobs):
        own = [group for group in groups if group.job == index]
        if job.queue:
            together.append([*running, *(group for group in own if not group.runs)])
        elif job.suspend:
            together.append(own)
    for each in together:
        late = first_that_does_not_fit(each, node, nodes)
        if late is not None:
            group = each[late]
            is_several = group.key == "parameter_servers" and group.count > 1
            remedy = "write less, or ask for less" if is_several else "ask for less"
            message = f"{_no_room(group, each[:late])}: {nodes} nodes offer {node} each; {remedy}"
            return [_problem(jobs, group, "capacity.local.no_room_beside", message)]
    return []


def _no_room(group: PodGroup, before: Sequence[PodGroup]) -> str:
    """Return the message that a pod group does not fit next to those before it."""
    own = ["the job's hosts"] if any(each.job == group.job for each in before) else []
    above = ["the jobs above"] if any(each.job != group.job for each in before) else []
    if group.role and group.count == 1:
        what = f"its {group.role} of {group.per_pod} does"
    else:
        what = f"{group.count} {group.role or 'hosts'} of {group.per_pod} each do"
    return f"{what} not fit{' beside ' if before else ''}{' and '.join(own + above)}"


def _local_node(jobs: Jobs, nodes: int, machine: Capacity) -> Capacity:
    """Return what each node has for jobs."""
    return left_for_jobs(machine, nodes, len(needed_releases(operators_of(jobs))))


def _left(node: Capacity, num_nodes: int, groups: Sequence[PodGroup]) -> PoolCapacity:
    """Return the capacity of identical nodes minus the requests of some pod groups."""
    millicores = node.millicores * num_nodes - sum(each.count * each.per_pod.millicores for each in groups)
    memory = node.memory * num_nodes - sum(each.count * each.per_pod.memory for each in groups)
    return PoolCapacity(name="nodes", free=Capacity(millicores=millicores, memory=memory))
