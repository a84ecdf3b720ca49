"""Capacity planning of a stack: the pool of each job, and the jobs that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from infra.capacity import assign_pools, remaining_capacity, unschedulable
from infra.cloud import Cloud
from infra.hardware import Capacity, PodGroup, PoolCapacity, first_that_does_not_fit, hosts_that_fit, this_machine
from infra.operator_releases import left_for_jobs, needed_releases
from settings.problem import UNDEFINED, Problem
from settings.text import counted
from settings.types import Section
from workloads.kinds import KINDS, kinds_where, operators_of
from workloads.spec import JobSpec

Jobs = tuple[JobSpec, ...]


def _with_value(jobs: Jobs, problem: Problem) -> Problem:
    """Return the problem of a job with the value at the problem's path."""
    index, *keys = problem.path[1:]
    value: object = jobs[int(index)]
    for key in keys:
        value = getattr(value, str(key))
    if isinstance(value, Section):
        value = value.model_dump()
    return replace(problem, value=UNDEFINED if value is None else value)


def _problem(jobs: Jobs, group: PodGroup, code: str, message: str, key: str = "") -> Problem:
    """Return a problem of a pod group at `key` of its job; without `key`, at the setting for the number of pods."""
    return _with_value(jobs, Problem(code, ("jobs", group.job, *(key or group.key).split(".")), message))


def _groups(jobs: Jobs) -> list[PodGroup]:
    """Return the pod groups of all jobs, each with the index of its job."""
    return [replace(group, job=index) for index, job in enumerate(jobs) for group in job.pod_groups]


def unschedulable_jobs(cloud: Cloud, jobs: Jobs) -> list[Problem]:
    """Return a problem for each job that does not fit on the nodes of a cloud platform."""
    problems = [_with_value(jobs, problem) for problem in unschedulable(cloud.pool_nodes(), _groups(jobs))]
    return problems or _divided_slices(cloud, jobs)


def _divided_slices(cloud: Cloud, jobs: Jobs) -> list[Problem]:
    """Return a problem for each job whose hosts Kubernetes may place in several TPU slices of its pool."""
    pools = {pool.name: pool for pool in cloud.pool_nodes()}
    names = pools_of_jobs(cloud, jobs)
    problems = []
    for index, job in enumerate(jobs):
        pool = pools.get(names.get(job.name) or "")
        if pool and pool.tpu and 1 < pool.tpu.hosts < pool.nodes and not KINDS[job.kind].isolates_slices:
            kinds = kinds_where(lambda kind: kind.isolates_slices)
            message = (
                f"pool {pool.name} has {pool.nodes // pool.tpu.hosts} slices, and Kubernetes may place hosts of this "
                f"kind in several of them; write {kinds}, or give each slice a pool of its own"
            )
            problems.append(Problem("job.kind.divides_slices", ("jobs", index, "kind"), message, job.kind))
    return problems


def pools_of_jobs(cloud: Cloud, jobs: Jobs) -> dict[str, str | None]:
    """Return job -> pool of its hosts (None on a platform without pools). Leave out jobs that do not fit."""
    groups = _groups(jobs)
    pools = zip(groups, assign_pools(cloud.pool_nodes(), groups), strict=True)
    return {jobs[group.job].name: pool for group, pool in pools if not (group.role or isinstance(pool, Problem))}


def advice(cloud: Cloud, jobs: Jobs, ttl_hours: float | None) -> list[str]:
    """Return advice about valid settings that cost time or money: hosts in several zones, and idle nodes that stay.

    Traffic between zones has a price: https://aws.amazon.com/ec2/pricing/on-demand/#Data_Transfer and
    https://cloud.google.com/vpc/network-pricing
    """
    pools = {pool.name: pool for pool in cloud.pool_nodes() if not pool.is_cpu_only}
    found = []
    for name, pool in pools_of_jobs(cloud, jobs).items():
        hosts = next(job.hosts for job in jobs if job.name == name)
        if pool in pools and hosts > 1 and len(zones := pools[pool].zones) > 1:
            found.append(
                f"the {hosts} hosts of job {name} can be in zones {' and '.join(zones)}, where gradient "
                f"exchange is slower and the cloud charges for its traffic; set `zones: [{zones[0]}]` in pool {pool}"
            )
    if ttl_hours is None:
        idle = [f"{pool.name} ({pool.nodes})" for pool in pools.values() if pool.keeps_idle]
        if idle:
            listed = ", ".join(idle)
            found.append(f"nodes of these pools stay and cost money when no job runs: {listed}; set `ttl_hours`")
    return found


def queue_capacity(cloud: Cloud, jobs: Jobs) -> list[PoolCapacity]:
    """Return the capacity of each pool minus the requests of the jobs that are neither queued nor suspended."""
    if pool_nodes := cloud.pool_nodes():
        return remaining_capacity(pool_nodes, _groups(jobs))
    if nodes := cloud.nodes_here:
        node = _local_node(jobs, nodes, this_machine())
        groups = [group for group in _groups(jobs) if group.runs]
        millicores = node.millicores * nodes - sum(group.count * group.per_pod.millicores for group in groups)
        memory = node.memory * nodes - sum(group.count * group.per_pod.memory for group in groups)
        return [PoolCapacity(name="nodes", free=Capacity(millicores=millicores, memory=memory))]
    return []


def local_capacity_problems(jobs: Jobs, nodes: int, machine: Capacity) -> list[Problem]:
    """Return a problem for each job larger than the local cluster, else for the first that does not fit with others."""
    node = _local_node(jobs, nodes, machine)
    offer = f"the cluster has {counted(nodes, 'node')} of {node}"
    problems = []
    for group in _groups(jobs):
        max_hosts = hosts_that_fit(group.per_pod, node) * nodes
        if group.role or group.count <= max_hosts:
            continue
        if not max_hosts:
            message = f"a host of {group.per_pod} does not fit on a node: {offer}; request less"
            problems.append(_problem(jobs, group, "capacity.local.host_too_large", message, "resources"))
            continue
        remedy = f"write `{group.key.rpartition('.')[2]}: {max_hosts}` or less, or request less per host"
        message = f"{group.count} hosts of {group.per_pod} each do not fit: {offer}, enough for {max_hosts}; {remedy}"
        problems.append(_problem(jobs, group, "capacity.local.hosts_too_many", message))
    return problems or _concurrency_problems(jobs, nodes, node)


def _concurrency_problems(jobs: Jobs, nodes: int, node: Capacity) -> list[Problem]:
    """Return a problem for the first pod group that does not fit next to concurrent pods."""
    groups = _groups(jobs)
    running = [group for group in groups if group.runs]
    # Queued jobs may wait for each other, so each only needs to fit next to the running jobs. A suspended job only
    # needs to fit alone.
    concurrent_groups = [running]
    for index, job in enumerate(jobs):
        job_groups = [group for group in groups if group.job == index]
        if job.queue:
            concurrent_groups.append([*running, *(group for group in job_groups if not group.runs)])
        elif job.suspend:
            concurrent_groups.append(job_groups)
    for pods in concurrent_groups:
        index_of_first = first_that_does_not_fit(pods, node, nodes)
        if index_of_first is not None:
            group = pods[index_of_first]
            has_several_servers = group.key == "parameter_servers" and group.count > 1
            remedy = "write fewer, or request less" if has_several_servers else "request less"
            offer = f"the cluster has {counted(nodes, 'node')} of {node}"
            message = f"{_does_not_fit(group, pods[:index_of_first])}: {offer}; {remedy}"
            return [_problem(jobs, group, "capacity.local.no_capacity_left", message)]
    return []


def _does_not_fit(group: PodGroup, placed: Sequence[PodGroup]) -> str:
    """Return the part of a message about a pod group that does not fit next to the placed groups."""
    neighbours = ["the job's hosts"] if any(other.job == group.job for other in placed) else []
    neighbours += ["other jobs"] if any(other.job != group.job for other in placed) else []
    if group.role and group.count == 1:
        subject = f"its {group.role} of {group.per_pod} does"
    else:
        subject = f"{group.count} {group.role or 'hosts'} of {group.per_pod} each do"
    return f"{subject} not fit{' next to ' if placed else ''}{' and '.join(neighbours)}"


def _local_node(jobs: Jobs, nodes: int, machine: Capacity) -> Capacity:
    """Return the capacity that each node of the local cluster has for jobs."""
    return left_for_jobs(machine, nodes, len(needed_releases(operators_of(jobs))))
