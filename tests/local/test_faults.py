"""Effects of faults on a job of each kind except `ray-job`, compared with the table in docs/kinds.md."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands.monitor.cluster import Cluster
from commands.monitor.job_state import JobState
from commands.monitor.pod_state import PodState, latest_pods
from commands.status import read_notes
from infra.builtin_images import TRAINER
from infra.local import lifecycle
from infra.local.image_store import program_reference
from infra.local.provider import load_images
from infra.local.settings import PAUSE_IMAGE, ClusterSettings
from infra.local.trainer_image import image_reference
from infra.operator_releases import RELEASES
from setup import operators as operator_steps
from setup.progress import run_steps
from tests.golden.manifests import ON_CLAIM
from tests.local import conftest
from tests.local.conftest import kubectl_of
from tests.local.fault_jobs import CAUSES, KINDS, PODS, STARTS_FOLDER, Cause, affected_pod_prefix, job_name, objects
from tests.plugins.stack import ROOT, Stack
from workloads.kinds import KINDS as JOB_KINDS
from workloads.spec import JobKind

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(2400)]

NAMESPACE = "training"
DOCUMENT = ROOT / "docs" / "kinds.md"
WAIT_SECONDS = 240.0
RESOURCES = [JOB_KINDS[kind].resource for kind in KINDS]
JOBS = ",".join(["jobs", *(f"{each.plural}.{each.api_version.partition('/')[0]}" for each in RESOURCES if each)])
PROGRAM = """
import sys
sys.path.insert(0, {project!r})

from infra.local.image_store import program_reference
from infra.local.components import BUCKET_IN_NODE
from infra.platform import BucketClaim, TrainingNamespace, TrainingNamespaceArgs
from infra.operator_releases import RELEASES
from infra.operators import Operators, OperatorsArgs

on_cluster = pulumi.ResourceOptions(providers={{"kubernetes": cluster}})
images = {{name: program_reference(name) for name in RELEASES}}
Operators("operators", OperatorsArgs(needed=frozenset(RELEASES), images=images), on_cluster)
bucket = BucketClaim(size="1Gi", access_mode="ReadWriteMany", folder=BUCKET_IN_NODE)
TrainingNamespace("training", TrainingNamespaceArgs(namespace=namespace, bucket=bucket), on_cluster)
"""


def documented_effects() -> dict[tuple[str, str], str]:
    """Return the effects in docs/kinds.md, by cause and kind."""
    text = DOCUMENT.read_text(encoding="utf-8")
    section = text.partition("## What happens when something goes wrong")[2].partition("\n### ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"]
    kinds = [cell.strip("`") for cell in rows[0][1:]]
    causes = dict(zip(CAUSES, rows[2:], strict=True))
    return {(cause, kind): row[column] for cause, row in causes.items() for column, kind in enumerate(kinds, start=1)}


def stable_name(pod: str) -> str:
    """Return the name that a pod shares with its replacements, without the random suffix of the pod."""
    return re.sub(r"(-\d+|-launcher)-\w{5}$", r"\1", pod)


class Faults:
    """Jobs on the cluster, each with a fault."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.folder = settings.bucket / STARTS_FOLDER
        self._cluster = Cluster(str(settings.kubeconfig), NAMESPACE)

    def starts(self, kind: JobKind, cause: Cause) -> Counter[str]:
        """Return the number of starts of a job's pods, by stable name."""
        folder = self.folder / job_name(kind, cause)
        names = [each.name for each in folder.iterdir() if "@" in each.name] if folder.is_dir() else []
        return Counter(stable_name(name.partition("@")[0]) for name in names)

    def seen(self, kind: JobKind, cause: Cause) -> tuple[JobState, list[PodState]]:
        """Return a job and its pods as `make status` reads them."""
        name = job_name(kind, cause)
        job = self._cluster.jobs([name])[name]
        return job, [pod for pod in self._cluster.pods([name]) if pod.owner == job.uid]

    def notes(self, job: JobState, pods: list[PodState]) -> dict[str, str]:
        """Return the notes about a job's pods that `make status` reads from events."""
        return read_notes(self._cluster, job, latest_pods(pods))


@contextmanager
def running_jobs(
    settings: ClusterSettings, folder: Path, kinds: Sequence[JobKind], causes: Sequence[Cause]
) -> Iterator[Stack]:
    """Yield a stack with the operators and, in its namespace, a job of each kind for each cause."""
    run_steps(operator_steps.steps(RELEASES, cluster=True))
    lifecycle.start(settings, print)
    trainer = image_reference(TRAINER)
    load_images(settings, [PAUSE_IMAGE, trainer, *(program_reference(name) for name in RELEASES)], print)
    kubectl = kubectl_of(settings)
    stack = Stack(folder, settings.kubeconfig, NAMESPACE)
    stack.write(PROGRAM.format(project=str(ROOT)))
    stack.run("stack", "init", "test")
    stack.up()
    placement = replace(ON_CLAIM, image=trainer)
    items = [each for kind in kinds for cause in causes for each in objects(kind, cause, placement)]
    # The operator rejects a TrainJob without its runtime.
    for is_train_job in (False, True):
        chosen = [each for each in items if (each["kind"] == "TrainJob") == is_train_job]
        kubectl("create", "-f", "-", document={"apiVersion": "v1", "kind": "List", "items": chosen})
    yield stack
    # Delete the jobs first, because their pods use the bucket's claim and their operators belong to the stack. A
    # runtime is deleted only after its operator has observed that no job uses it.
    for resources in (JOBS, "trainingruntimes,services"):
        kubectl("--namespace", NAMESPACE, "delete", "--all", resources)
    stack.run("destroy", "--yes", "--skip-preview")


@pytest.fixture(scope="module")
def faults(settings: ClusterSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faults]:
    """Yield a job of each kind for each cause."""
    with running_jobs(settings, tmp_path_factory.mktemp("faults"), KINDS, CAUSES) as stack:
        found = Faults(settings)
        for kind in KINDS:
            inject_fault(found, stack.core(), kind, "deleted")
            inject_fault(found, stack.core(), kind, "evicted")
        yield found


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    """Wait until `condition` is true. Fail after `WAIT_SECONDS`."""
    conftest.wait_for(what, condition, WAIT_SECONDS)


def inject_fault(faults: Faults, core: Any, kind: JobKind, cause: Cause) -> None:
    """Delete or evict the affected pod after all pods of its job have started."""
    name = job_name(kind, cause)
    wait_for(f"all pods of {name} have started", lambda: faults.starts(kind, cause).total() == PODS.get(kind, 2))
    place = affected_pod_prefix(kind, cause, name)
    (pod,) = [each.name for each in faults.seen(kind, cause)[1] if each.name.startswith(place)]
    if cause == "deleted":
        core.delete_namespaced_pod(pod, NAMESPACE)
    else:
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod, "namespace": NAMESPACE}}
        core.create_namespaced_pod_eviction(pod, NAMESPACE, eviction)


def observed_effect(faults: Faults, kind: JobKind, cause: Cause) -> str | None:
    """Return the effect on a job in the words of docs/kinds.md, or None while it is unknown."""
    job, pods = faults.seen(kind, cause)
    starts = faults.starts(kind, cause)
    name = job_name(kind, cause)
    place = affected_pod_prefix(kind, cause, name)
    num_starts = starts.pop(place, 0)
    launcher = starts.pop(f"{name}-launcher", 1) if kind == "mpi-job" else 1
    others = set(starts.values())
    if job.state == "complete":
        if num_starts == 2 and others == {1}:
            return "continues" if launcher == 1 else "mpirun again"
        return f"complete after {num_starts}, {others}"
    if job.state == "failed":
        # A deadline can pass before the pods start.
        return "fails at once" if num_starts <= 1 else "fails after restarts"
    if num_starts > 3:
        return "again and again"
    reasons = {pod.reason for pod in pods}
    if not num_starts and reasons & {"ErrImagePull", "ImagePullBackOff"}:
        return "waits, image"
    return "waits, capacity" if "Unschedulable" in reasons else None


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("kind", KINDS)
def test_fault_has_documented_effect(faults: Faults, kind: JobKind, cause: Cause) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while (seen := observed_effect(faults, kind, cause)) is None and time.monotonic() < deadline:
        time.sleep(1)
    assert seen == documented_effects()[cause, kind], (faults.starts(kind, cause), faults.seen(kind, cause))


@pytest.mark.parametrize("kind", KINDS)
def test_fault_reason_is_in_status(faults: Faults, kind: JobKind) -> None:
    reasons = {cause: " ".join(pod.why for pod in faults.seen(kind, cause)[1]) for cause in CAUSES}
    assert "exit code 78: the script's own code" in reasons["exit-78"]
    assert "trainyard.local/missing:1" in reasons["no-image"]
    assert "Insufficient cpu" in reasons["no-capacity"]
    assert "exit code 1: " in reasons["exit-1"]
    if documented_effects()["memory", kind].startswith("fails"):
        assert "out of memory" in reasons["memory"]
    else:
        # The failed pod may be deleted before its replacement exists. The events then have its exit code.
        def is_explained() -> bool:
            notes = faults.notes(*faults.seen(kind, "memory")).values()
            return any("137: " in note and "raise `resources.memory`" in note for note in notes)

        wait_for("the end of the failed pod is explained", is_explained)
