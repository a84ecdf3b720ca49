"""What in a stack's values cannot be together: jobs with each other, with their platform, with this machine. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from pydantic_core import PydanticUndefined

from infra import rules
from infra.aws.config import EksConfig
from infra.clear_secrets import looks_random, shape
from infra.config import KubeconfigConfig, LocalConfig, PlatformConfig, UrlConfig
from infra.fit import Ask, Misfit, misfits, places, rooms
from infra.gcp.config import GkeConfig
from infra.hardware import Capacity, Demand, first_that_does_not_fit, hosts_that_fit, this_machine
from infra.image.own_images import OWN_IMAGES, TRAINER, built_everywhere
from infra.kubeconfig import contexts, kubeconfig_files
from infra.operators.releases import needed_releases
from infra.operators.room import left_for_jobs
from infra.pool_room import PoolRoom
from infra.problems import Problem
from infra.scalars import Section
from workloads import own_script
from workloads.bucket_rules import bucket_conflicts
from workloads.conflicts import Conflict, conflicts
from workloads.image_rules import ImageOffer, image_conflicts
from workloads.needs import operators_of
from workloads.spec import JobSpec
from workloads.taken_names import shared

SECRETS = "secrets"
"""Namespace of the configuration's secrets: `pulumi config set --secret secrets:wandb`."""
CHECKOUT = Path(__file__).resolve().parent
"""What the paths of the jobs' own scripts are relative to."""
Jobs = tuple[JobSpec, ...]


def contradictions(platform: PlatformConfig, jobs: Jobs) -> list[Problem]:
    """Values that are right by themselves and wrong together."""
    found = rules.contradictions(platform)
    names: dict[str, int] = {}
    for index, job in enumerate(jobs):
        path = ("jobs", index)
        first = names.setdefault(job.name, index)
        if first != index:
            found.append(Problem((*path, "name"), f"is the name of jobs[{first}] too; names must differ", job.name))
        # What runs a job is asked where it is clear what the job is.
        for each in [*conflicts(job), *_without_accelerators(platform, job)] or _not_offered(platform, job):
            value = PydanticUndefined if each.value is None else each.value
            found.append(Problem((*path, *each.key.split(".")), each.message, value))
    for index, each in shared(jobs):
        found.append(Problem(("jobs", index, *each.key.split(".")), each.message, each.value))
    # Only where each value is right is there an answer to whether the jobs fit.
    return found or without_room(platform, jobs) or not_handed_over(platform, jobs)


def _without_accelerators(platform: PlatformConfig, job: JobSpec) -> Iterator[Conflict]:
    if job.accelerator and isinstance(platform, LocalConfig):
        message = "the cluster on this machine has CPUs only; remove it, or run the job on a cloud's stack"
        yield Conflict("accelerator", message, job.accelerator)


def _not_offered(platform: PlatformConfig, job: JobSpec) -> Iterator[Conflict]:
    """What a job asks for that its platform does not have, and another may."""
    yield from image_conflicts(job, _images(platform))
    if scheme := _object_store(platform):
        yield from bucket_conflicts(job, scheme)


def _images(platform: PlatformConfig) -> ImageOffer:
    """Which of Trainyard's own images a platform builds, and whether it pulls others."""
    every = frozenset({TRAINER, *OWN_IMAGES})
    if isinstance(platform, LocalConfig):
        return ImageOffer(builds=every, pulls=False)
    if isinstance(platform, KubeconfigConfig) or platform.image.prebuilt:
        return ImageOffer(builds=frozenset())
    return ImageOffer(builds=built_everywhere(every))


def _object_store(platform: PlatformConfig) -> str:
    """How the URL of the platform's bucket begins; empty where the bucket is a folder of each pod."""
    if isinstance(platform, KubeconfigConfig):
        return platform.bucket.url.partition("://")[0] if isinstance(platform.bucket, UrlConfig) else ""
    return "gs" if isinstance(platform, GkeConfig) else "s3" if isinstance(platform, EksConfig) else ""


def without_room(platform: PlatformConfig, jobs: Jobs) -> list[Problem]:
    """The jobs that a cloud platform has no nodes for."""
    found = []
    for misfit in misfits(platform, _asks(jobs)):
        job = jobs[misfit.job]
        if misfit.key == "hosts" and job.elastic:
            path = ("jobs", misfit.job, "elastic", "max_hosts")
            found.append(Problem(path, misfit.message, job.elastic.max_hosts))
            continue
        value = getattr(job, misfit.key)
        shown = value.model_dump() if isinstance(value, Section) else PydanticUndefined if value is None else value
        found.append(Problem(("jobs", misfit.job, misfit.key), misfit.message, shown))
    return found


def not_handed_over(platform: PlatformConfig, jobs: Jobs) -> list[Problem]:
    """Jobs of a kind to whose pods Kueue cannot say for which request their nodes have come.

    Source: sigs.k8s.io/kueue v0.14.0, pkg/controller/jobs/trainjob: no annotations in what it hands over.
    """
    pools = platform.pools if isinstance(platform, GkeConfig) else ()
    on_request = {pool.name for pool in pools if pool.capacity == ("queued",)}
    placed = pools_of_jobs(platform, jobs)
    message = "Kueue cannot give queued nodes to jobs of this kind; write jobset, or give the pool another capacity"
    return [
        Problem(("jobs", index, "kind"), message, job.kind)
        for index, job in enumerate(jobs)
        if job.kind == "train-job" and placed.get(job.name) in on_request
    ]


def pools_of_jobs(platform: PlatformConfig, jobs: Jobs) -> dict[str, str | None]:
    """Job -> the pool of a cloud platform that it runs in; None where there are no pools."""
    pools = places(platform, _asks(jobs))
    return {job.name: pool for job, pool in zip(jobs, pools, strict=True) if not isinstance(pool, Misfit)}


def queue_rooms(platform: PlatformConfig, jobs: Jobs) -> list[PoolRoom]:
    """What each pool has for the jobs of queues, beside the jobs without one."""
    if isinstance(platform, GkeConfig | EksConfig):
        return rooms(platform, _asks(jobs))
    if isinstance(platform, LocalConfig):
        node = _local_node(jobs, platform, this_machine())
        return [_left(node, platform.nodes, [demand for job in jobs for demand in _beside_queues(job)])]
    return []


def _asks(jobs: Jobs) -> list[Ask]:
    return [
        Ask(
            hosts=job.hosts,
            per_host=job.resources.capacity,
            accelerator=job.accelerator,
            topology=job.topology,
            accelerators=job.accelerators,
            queue=job.queue is not None,
        )
        for job in jobs
    ]


def unusable_secrets(jobs: Jobs, secrets: Mapping[str, bool]) -> list[Problem]:
    """Secrets that jobs name and the stack does not have, or that it has in clear. No value is ever shown."""
    found = []
    for index, job in enumerate(jobs):
        for variable, name in job.secrets.items():
            path = ("jobs", index, "secrets", variable)
            if name not in secrets:
                # What was put in the place of its name is not shown.
                command = _stored("NAME" if looks_random(name) else name)
                found.append(Problem(path, f"names no secret of this stack; run {command} in `make shell`"))
            elif not secrets[name]:
                message = f"the stack's settings have {SECRETS}:{name} in clear; run {_stored(name)} in `make shell`"
                found.append(Problem(path, message))
    named = {name for job in jobs for name in job.secrets.values()}
    for name, encrypted in secrets.items():
        if not encrypted and name not in named:
            message = f"is in clear; run {_stored(name)} in `make shell`, or remove it, which no job names"
            found.append(Problem((name,), message, namespace=SECRETS))
    return found


def _stored(name: str) -> str:
    """The command that stores a secret encrypted."""
    return f"`pulumi config set --secret {SECRETS}:{name}`"


def never_ended(platform: PlatformConfig, ttl_hours: float | None) -> list[Problem]:
    """A time to live of what may not be destroyed."""
    if ttl_hours is None or not getattr(platform, "deletion_protection", False):
        return []
    message = "is for a stack that may be destroyed; remove it, or `deletion_protection` of the platform"
    return [Problem(("ttl_hours",), message, ttl_hours)]


def missing_here(platform: PlatformConfig, jobs: Jobs) -> list[Problem]:
    """What the configuration asks for and this machine does not have."""
    scripts = unreadable_scripts(jobs)
    if isinstance(platform, LocalConfig):
        return scripts + shortage(jobs, platform, this_machine())
    if isinstance(platform, KubeconfigConfig):
        return unknown_context(platform) + scripts
    return scripts


def unreadable_scripts(jobs: Jobs) -> list[Problem]:
    """The jobs' scripts of the checkout that cannot be sent to pods."""
    found = []
    for index, job in enumerate(jobs):
        if job.script is None:
            continue
        if not own_script.is_here(job.script):
            if job.image is None and (here := own_script.remedy(job.script, CHECKOUT)):
                message = f"is a file of this checkout, and not of the image; write {here}"
                found.append(Problem(("jobs", index, "script"), message, job.script))
            continue
        try:
            if secret := shape(own_script.read(job.script, CHECKOUT).text):
                raise ValueError(f"has {secret} in clear; let it read a variable, and write `secrets:` in the job")
        except ValueError as error:
            found.append(Problem(("jobs", index, "script"), str(error), job.script))
    return found


def unknown_context(platform: KubeconfigConfig) -> list[Problem]:
    """The platform's context, when no kubeconfig has it."""
    files = kubeconfig_files(platform.kubeconfig)
    key, value = ("context", platform.context)
    try:
        names = contexts(files)
    except ValueError as error:
        key, value, message = "kubeconfig", platform.kubeconfig or "", str(error)
    else:
        if value in names:
            return []
        place = ", ".join(map(str, files))
        message = (
            f"is no context in {place}; write one of {', '.join(names)}"
            if names
            else f"there is no context in {place}; set platform.kubeconfig to the file that has it"
        )
    return [Problem(("platform", key), message, value)]


def shortage(jobs: Jobs, platform: LocalConfig, machine: Capacity) -> list[Problem]:
    """The jobs that a local cluster on `machine` has no room for, each by itself or else all that run at once."""
    node = _local_node(jobs, platform, machine)
    offer = f"{platform.nodes} nodes offer {node} each"
    found = []
    for index, job in enumerate(jobs):
        ask = job.demands[0]
        fit = hosts_that_fit(ask.per_host, node) * platform.nodes
        if ask.hosts > fit:
            if not fit:
                message = f"no node has room for a host of {ask.per_host}: {offer}; ask for less"
                found.append(Problem(("jobs", index, "resources"), message, job.resources.model_dump()))
                continue
            remedy = f"write `hosts: {fit}` or less, or ask for less"
            message = f"{ask.hosts} hosts of {ask.per_host} each do not fit: {offer}, room for {fit}; {remedy}"
            found.append(Problem(("jobs", index, "hosts"), message, ask.hosts))
    if found:
        return found
    beside = [(index, demand) for index, job in enumerate(jobs) for demand in _beside_queues(job)]
    # Jobs of queues may have to wait for each other: each needs room with all that does not wait.
    admitted = [
        [(index, demand) for demand in job.demands[: len(job.demands) - len(_beside_queues(job))]]
        for index, job in enumerate(jobs)
        if job.queue
    ]
    for asked in ([*beside, *demands] for demands in admitted or [[]]):
        late = first_that_does_not_fit([demand for _, demand in asked], node, platform.nodes)
        if late is None:
            continue
        index, ask = asked[late]
        hosts = ask == jobs[index].demands[0]
        what = f"{ask.hosts} {'hosts' if hosts else 'further pods'} of {ask.per_host} each"
        above = "the jobs above" if hosts else "the job's hosts and the jobs above"
        message = f"{what} do not fit beside {above}: {offer}; ask for less"
        return [Problem(("jobs", index, "hosts"), message, jobs[index].hosts)]
    return []


def _local_node(jobs: Jobs, platform: LocalConfig, machine: Capacity) -> Capacity:
    """What each node has for jobs."""
    return left_for_jobs(machine, platform.nodes, len(needed_releases(operators_of(jobs))))


def _beside_queues(job: JobSpec) -> tuple[Demand, ...]:
    """What runs whatever a queue admits: all of a job without one, and the etcd of any."""
    if not job.queue:
        return job.demands
    return job.demands[1:] if job.meeting == "etcd" else ()


def _left(node: Capacity, num_nodes: int, demands: Sequence[Demand]) -> PoolRoom:
    """What equal nodes have left beside some demands."""
    millicores = node.millicores * num_nodes - sum(each.hosts * each.per_host.millicores for each in demands)
    memory = node.memory * num_nodes - sum(each.hosts * each.per_host.memory for each in demands)
    return PoolRoom(pool="nodes", room=Capacity(millicores=millicores, memory=memory))
