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


def name_collisions(jobs: Sequence[JobSpec]) -> Iterator[tuple[int, Problem]]:
    """Yield each conflict between jobs of different names, with the index of the later job."""
    yield from _derived_name_collisions(jobs)
    folders: dict[tuple[object, object], int] = {}
    for index, job in enumerate(jobs):
        if job.recipe is None:
            continue
        flag = value_of(job.recipe, job.flags, "job")
        bucket, folder = value_of(job.recipe, job.flags, "bucket") or "", flag or job.name
        if folder in SHARED_FOLDERS:
            message = f"is the bucket's folder for the {folder} of all jobs; rename the job, or change the flag `job`"
            yield index, Problem("job.folder.of_all_jobs", ("flags", "job") if flag else ("name",), message, folder)
        other = folders.setdefault((bucket, folder), index)
        if jobs[other].name != job.name:
            message = f"jobs[{other}] also writes its checkpoints to folder {folder}; change the flag `job` of one job"
            yield index, Problem("job.folder.shared", ("flags", "job") if flag else ("name",), message, folder)


def _derived_name_collisions(jobs: Sequence[JobSpec]) -> Iterator[tuple[int, Problem]]:
    owners: dict[str, int] = {}
    reported = set[tuple[int, int]]()
    for index, job in enumerate(jobs):
        for name in reserved_names(job):
            other = owners.setdefault(name, index)
            if jobs[other].name != job.name and (index, other) not in reported:
                reported.add((index, other))
                message = f"creates an object named {name}, as jobs[{other}] does; rename one of the two jobs"
                yield index, Problem("job.name.shared", ("name",), message, job.name)


TORCHRUN_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
)
"""https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables"""
XLA_VARIABLES = ("PJRT_DEVICE", "MEGASCALE_COORDINATOR_ADDRESS", "MEGASCALE_NUM_SLICES", "MEGASCALE_SLICE_ID")
TPU_HOST_VARIABLES = ("TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES", "TPU_TOPOLOGY", "TPU_ACCELERATOR_TYPE")
"""https://cloud.google.com/kubernetes-engine/docs/how-to/tpus"""
POD_VARIABLE_NAMES = (*(name.partition("=")[0] for name in POD_VARIABLES), "OMP_NUM_THREADS", *NEW_STORE_PER_ROUND)
"""Variables that the image or Trainyard sets in pods. `environment` may override them; a secret would duplicate
them."""


def reserved_variables(spec: JobSpec) -> dict[str, str]:
    """Return each variable that a job may not set -> the program that sets it."""
    owners = dict.fromkeys(TORCHRUN_VARIABLES, "torchrun") if uses_torchrun(spec) else {}
    kind = KINDS[spec.kind]
    owners |= {**dict.fromkeys(kind.operator_variables, "the operator"), **kind.reserved_variables}
    if spec.on_xla:
        owners |= dict.fromkeys(XLA_VARIABLES, "Trainyard")
    if spec.tpu:
        owners |= dict.fromkeys(TPU_HOST_VARIABLES, "GKE")
    if spec.elastic and uses_torchrun(spec):
        owners |= dict.fromkeys(NEW_STORE_PER_ROUND, "Trainyard")
    return owners
