"""Validation of names: no two jobs may share the name of a resource or a checkpoint folder. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from settings.problem import Problem
from workloads.kinds import KINDS
from workloads.kinds.kind import ETCD_SUFFIX
from workloads.spec import JobSpec
from workloads.trainer_flags import value_of

FOLDERS_OF_ALL = ("checkpoints", "profiles")
"""Folders of the bucket that the trainer shares between jobs (trainer/storage.py)."""


def reserved_names(spec: JobSpec) -> Iterator[str]:
    """Yield the job's name and all names derived from it."""
    yield spec.name
    for suffix in KINDS[spec.kind].child_suffixes(spec):
        yield f"{spec.name}{suffix}"
    if spec.rendezvous_backend == "etcd":
        yield f"{spec.name}{ETCD_SUFFIX}"


def shared(jobs: Sequence[JobSpec]) -> Iterator[tuple[int, Problem]]:
    """Yield each conflict between jobs of different names, with the index of the later job."""
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
        for name in reserved_names(job):
            other = owners.setdefault(name, index)
            if jobs[other].name != job.name and (index, other) not in told:
                told.add((index, other))
                message = f"takes the name {name}, which jobs[{other}] takes too; give one of the two jobs another name"
                yield index, Problem("job.name.shared", ("name",), message, job.name)
