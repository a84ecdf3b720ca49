"""Measurements of the overhead over plain tools: time to the first step, `up` and preview without changes.

A further measurement shows how the CPU time of a preview grows with the stack's size.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.measure import PROJECT, BenchError, Measure, alternate
from bench.programs import BenchStack, kubectl, removed_afterwards, wait_until
from commands.monitor.cluster import Cluster
from commands.rehearse.folder import environment
from commands.stack import WITHOUT_SNAPSHOTS
from infra.builtin_images import TRAINER
from infra.local.settings import PAUSE_IMAGE, ClusterSettings
from infra.local.trainer_image import image_reference
from simulation.cloud.model import new_state
from stack.config import load_file

STACK = "bench-ours"
SETTINGS = ClusterSettings(owner=str(PROJECT), stack=STACK, name="bench", port=16989)
"""Cluster of the bench, separate from the user's clusters."""
NAMESPACE = "training"
HANDWRITTEN_NAMESPACE = "handwritten"
"""Namespace of the hand-written program in the same cluster. Two programs cannot own the same objects."""
STEP_SECONDS = 300.0
"""Maximum seconds until a job's first training step, and until its pods are gone."""


def idle_job(job: dict[str, Any]) -> dict[str, Any]:
    """Return the job with an image that has no training program. The job fails at once and disturbs no measurement."""
    return job | {"image": PAUSE_IMAGE, "restarts": 0}


def handwritten_config(job: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Return the settings of the hand-written program for a stack with only this job."""
    return {
        "owner": SETTINGS.owner,
        "stack": SETTINGS.stack,
        "cluster": SETTINGS.name,
        "port": SETTINGS.port,
        "namespace": namespace,
        "clusterImage": image_reference(TRAINER),
        "image": job["image"],
    }


def default_job() -> dict[str, Any]:
    """Return the settings of the default stack's job, which users run first."""
    return load_file(PROJECT / "Pulumi.local.yaml").jobs[0].model_dump(mode="json", exclude_unset=True)


def our_config(*jobs: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of Trainyard's program for a stack with these jobs."""
    platform = {"kind": "local", "name": SETTINGS.name, "nodes": SETTINGS.nodes, "port": SETTINGS.port}
    return {"trainyard:platform": platform, "trainyard:jobs": list(jobs)}


class ControlPlane:
    """Running cluster without a job, and the two stacks that the bench compares on this cluster."""

    def __init__(self, folder: Path) -> None:
        self._ours = BenchStack(STACK, PROJECT, folder / "ours")
        self._theirs = BenchStack("bench-handwritten", PROJECT / "bench" / "handwritten", folder / "theirs")
        self._manifests = folder / "job.json"
        self._job = default_job()
        self._ours.up(our_config())
        self._cluster = Cluster(str(SETTINGS.kubeconfig), NAMESPACE)

    def first_step(self) -> Measure:
        """Measure the time from `pulumi up` to the first training step, against `kubectl apply` of the same objects."""

        def ours() -> float:
            self._forget_run()
            started = datetime.now(UTC)
            self._ours.up(our_config(self._job))
            seconds = self._seconds_to_first_step(started)
            self._ours.save_objects(self._manifests, self._job["name"])
            self._ours.up(our_config())
            self._wait_until_gone()
            return seconds

        def theirs() -> float:
            self._forget_run()
            started = datetime.now(UTC)
            kubectl(SETTINGS, "apply", "--server-side", "-f", str(self._manifests))
            seconds = self._seconds_to_first_step(started)
            kubectl(SETTINGS, "delete", "--wait", "-f", str(self._manifests))
            self._wait_until_gone()
            return seconds

        return alternate("first-step", 1.2, ours, theirs)

    def no_change(self) -> list[Measure]:
        """Measure `up` and preview without changes, against a hand-written program with the same resources."""
        idle = idle_job(self._job)
        ours = our_config(idle)
        plain = handwritten_config(idle, HANDWRITTEN_NAMESPACE)
        theirs = {f"handwritten:{key}": value for key, value in plain.items()}
        self._ours.up(ours)
        self._theirs.up(theirs)
        self._check_same_objects()
        expect = "--expect-no-changes"
        measures = [
            alternate("noop-up", 1.1, lambda: self._ours.up(ours, expect), lambda: self._theirs.up(theirs, expect)),
            alternate(
                "preview", 1.1, lambda: self._ours.preview(ours, expect), lambda: self._theirs.preview(theirs, expect)
            ),
        ]
        self._ours.destroy()
        return measures

    def _check_same_objects(self) -> None:
        ours, theirs = self._ours.objects(), self._theirs.objects(renamed=(HANDWRITTEN_NAMESPACE, NAMESPACE))
        for key in sorted(ours.keys() | theirs.keys()):
            if ours.get(key) != theirs.get(key):
                raise BenchError(
                    f"bench/handwritten no longer creates the same objects: {' '.join(key)} differs; change it to\n"
                    + json.dumps(ours.get(key), indent=1)
                )

    def _seconds_to_first_step(self, started: datetime) -> float:
        """Return the seconds from `started` to the first training step of host 0, by the timestamp of its log line."""
        name = self._job["name"]
        stamps: list[str] = []

        def has_trained() -> bool:
            for pod in self._cluster.pods([name]):
                if pod.state == "failed":
                    raise BenchError(f"{pod.name} failed before its first step: {pod.why}")
                if pod.index == 0 and pod.has_log:
                    stamps.extend(stamp for stamp, text in self._cluster.stamped_log(pod) if text.startswith("train "))
            return bool(stamps)

        wait_until(has_trained, STEP_SECONDS, f"job {name} has not started to train")
        return (datetime.fromisoformat(f"{stamps[0][:26]}+00:00") - started).total_seconds()

    def _wait_until_gone(self) -> None:
        wait_until(lambda: not self._cluster.pods([self._job["name"]]), STEP_SECONDS, "the job's pods still exist")

    def _forget_run(self) -> None:
        """Empty the bucket, so that every run begins at step 0."""
        for folder in SETTINGS.bucket.iterdir():
            shutil.rmtree(folder)


@contextmanager
def control_plane() -> Iterator[ControlPlane]:
    """Return a context with a running cluster for the measurements. At its end, remove the cluster from the machine."""
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder, removed_afterwards(SETTINGS):
        yield ControlPlane(Path(folder))


SLOPE_COUNTS = (1, 257, 513)
"""Numbers of pools or jobs in the three compared previews."""
SLOPE_GOAL = 1.2
SLOPE_ROUNDS = 5
SLOPE_STACK = "bench-slope"


def slope_config(pools: int, jobs: int) -> dict[str, Any]:
    """Return the settings of a GKE stack with these numbers of pools and jobs."""
    platform = {
        "kind": "gke",
        "project": "some-project",
        "name": "slope",
        "image": {"prebuilt": f"gcr.io/some-project/trainer@sha256:{'0' * 64}"},
        "pools": [
            {"name": f"pool-{index}", "machine_type": "g2-standard-8", "nodes": max(SLOPE_COUNTS) if index == 0 else 1}
            for index in range(pools)
        ],
    }
    request = {"recipe": "digits", "accelerator": "nvidia-l4", "resources": {"cpu": 2, "memory": "4Gi"}}
    job_settings = [{"name": f"job-{index}", **request} for index in range(jobs)]
    return {"trainyard:platform": platform, "trainyard:jobs": job_settings}


class Previews:
    """Previews of a stack on a simulated cloud. The stack is never deployed."""

    def __init__(self, folder: Path) -> None:
        clouds = folder / "clouds"
        clouds.mkdir()
        new_state(clouds)
        (clouds / "authorities.pem").write_bytes(b"")
        certificates = {"SSL_CERT_FILE": os.environ.get("SSL_CERT_FILE", "")}
        self._stack = BenchStack(
            SLOPE_STACK, PROJECT, folder / "stack", {**environment(clouds), **WITHOUT_SNAPSHOTS, **certificates}
        )

    def seconds(self, pools: int, jobs: int) -> float:
        """Return the CPU seconds of one preview, summed over its processes.

        Wall-clock time is not exact enough: for the same stack, it varies by more than the time of fifty jobs.
        """
        before = _cpu_seconds_of_ended_processes()
        self._stack.preview(slope_config(pools, jobs))
        return _cpu_seconds_of_ended_processes() - before

    def slope(self, name: str, *, pools: int, jobs: int) -> Measure:
        """Compare the milliseconds that each added pool or job costs in large and in small stacks.

        Large stacks have 257 to 513 pools or jobs, small stacks 1 to 257. `pools=1` varies the number of pools, and
        `jobs=1` the number of jobs. With 0, the stack has one pool or one job. Each round previews all three sizes, so
        that a slow moment of the machine affects all sizes. The first round does not count.
        """
        low, middle, high = SLOPE_COUNTS
        large_ms: list[float] = []
        small_ms: list[float] = []
        for number in range(SLOPE_ROUNDS + 1):
            few, some, many = (
                self.seconds(*(1 + each * (count - 1) for each in (pools, jobs))) for count in SLOPE_COUNTS
            )
            if number:
                small_ms.append(1000 * (some - few) / (middle - low))
                large_ms.append(1000 * (many - some) / (high - middle))
            progress = f"{low}: {few:.2f} s, {middle}: {some:.2f} s, {high}: {many:.2f} s"
            print(f"  {name} {number}/{SLOPE_ROUNDS}: {progress}", file=sys.stderr, flush=True)
        return Measure(name=name, ours=tuple(large_ms), theirs=tuple(small_ms), goal=SLOPE_GOAL, unit="ms")


def _cpu_seconds_of_ended_processes() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def preview_slopes() -> list[Measure]:
    """Measure the CPU time that each further pool or job adds to a preview, in small and in large stacks."""
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as folder:
        previews = Previews(Path(folder))
        return [previews.slope("preview-per-job", pools=0, jobs=1), previews.slope("preview-per-pool", pools=1, jobs=0)]
