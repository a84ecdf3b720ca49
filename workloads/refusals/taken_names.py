"""The names that a job's resources have in its namespace, and its checkpoint folder: no two jobs take one. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType

from settings.problem import Problem
from workloads.kind_rules import ETCD_SUFFIX, SLICES, TRAIN_JOB_NODES
from workloads.spec import JobKind, JobSpec
from workloads.trainer_flags import value_of


def _numbered(role: str, count: int) -> Iterator[str]:
    return (f"-{role}-{index}" for index in range(count))


def _mpi(spec: JobSpec) -> Iterator[str]:
    yield from ("-launcher", "-config", "-ssh")
    yield from _numbered("worker", spec.hosts)


def _pytorch(spec: JobSpec) -> Iterator[str]:
    yield "-master-0"
    yield from _numbered("worker", spec.hosts)


def _mx(spec: JobSpec) -> Iterator[str]:
    yield "-scheduler-0"
    yield from _numbered("server", spec.parameter_servers)
    yield from _numbered("worker", spec.hosts)


_MADE: Mapping[JobKind, Callable[[JobSpec], Iterator[str]]] = MappingProxyType(
    {
        "indexed-job": lambda _spec: iter(()),
        "pytorch-job": _pytorch,
        "mpi-job": _mpi,
        "mx-job": _mx,
        "jobset": lambda spec: _numbered(SLICES, spec.slices),
        "train-job": lambda _spec: _numbered(TRAIN_JOB_NODES, 1),
    }
)
"""What is appended to a job's name by its kind's controller, for Jobs, Services, pods and what they mount."""

FOLDERS_OF_ALL = ("checkpoints", "profiles")
"""What the trainer writes outside of a job's own folder of the bucket (trainer/bucket_layout.py)."""


def taken_names(spec: JobSpec) -> Iterator[str]:
    """The job's own name, and each that is made of it."""
    yield spec.name
    for suffix in _MADE[spec.kind](spec):
        yield f"{spec.name}{suffix}"
    if spec.meeting == "etcd":
        yield f"{spec.name}{ETCD_SUFFIX}"


def shared(jobs: Sequence[JobSpec]) -> Iterator[tuple[int, Problem]]:
    """What two jobs of different names would share without meaning to, each with the index of the later one."""
    yield from _names(jobs)
    folders: dict[tuple[object, object], int] = {}
    for index, job in enumerate(jobs):
        if job.recipe is None:
            continue
        flag = value_of(job.recipe, job.flags, "job")
        bucket, folder = value_of(job.recipe, job.flags, "bucket") or "", flag or job.name
        if folder in FOLDERS_OF_ALL:
            message = f"is the folder of all jobs' {folder} in the bucket; give the job another name, or a flag `job`"
            yield index, Problem("job.folder.of_all_jobs", ("flags", "job") if flag else ("name",), message, folder)
        other = folders.setdefault((bucket, folder), index)
        if jobs[other].name != job.name:
            message = f"jobs[{other}] writes its checkpoints to folder {folder} too; write another `job` in its flags"
            yield index, Problem("job.folder.shared", ("flags", "job") if flag else ("name",), message, folder)


def _names(jobs: Sequence[JobSpec]) -> Iterator[tuple[int, Problem]]:
    owners: dict[str, int] = {}
    told = set[tuple[int, int]]()
    for index, job in enumerate(jobs):
        for name in taken_names(job):
            other = owners.setdefault(name, index)
            if jobs[other].name != job.name and (index, other) not in told:
                told.add((index, other))
                message = f"takes the name {name}, which jobs[{other}] takes too; give one of the two jobs another name"
                yield index, Problem("job.name.shared", ("name",), message, job.name)
