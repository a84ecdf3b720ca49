"""Validation of names that two jobs may not share, and of variables that a job may not set. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from settings.problem import Problem
from workloads.command import NEW_STORE_PER_ROUND, POD_VARIABLES, uses_torchrun
from workloads.kinds import KINDS
from workloads.kinds.kind import ETCD_SUFFIX
from workloads.spec import JobSpec
from workloads.trainer_flags import value_of

SHARED_FOLDERS = ("checkpoints", "profiles")
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
        if folder in SHARED_FOLDERS:
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


RANKS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT")
"""https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables"""
XLA = ("PJRT_DEVICE", "MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID")
TPU_HOST = ("TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "TPU_TOPOLOGY", "TPU_ACCELERATOR_TYPE")
"""https://cloud.google.com/kubernetes-engine/docs/how-to/tpus"""
NO_SECRETS = (*(name.partition("=")[0] for name in POD_VARIABLES), "OMP_NUM_THREADS", *NEW_STORE_PER_ROUND)
"""Variables that the image or Trainyard sets in pods. `environment` may override them; a secret would duplicate
them."""


def taken(spec: JobSpec) -> dict[str, str]:
    """Return each name that `environment` and `secrets` may not have, with its owner."""
    found = dict.fromkeys(RANKS, "torchrun") if uses_torchrun(spec) else {}
    kind = KINDS[spec.kind]
    found |= {**dict.fromkeys(kind.operator_variables, "the operator"), **kind.reserved_variables}
    if spec.on_xla:
        found |= dict.fromkeys(XLA, "Trainyard")
    if spec.tpu:
        found |= dict.fromkeys(TPU_HOST, "GKE")
    if spec.elastic and uses_torchrun(spec):
        found |= dict.fromkeys(NEW_STORE_PER_ROUND, "Trainyard")
    return found
