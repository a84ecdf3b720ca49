"""Measurements of a job of 1,024 hosts on simulated nodes: Trainyard or kubectl creates and deletes the job."""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.measure import PAIRS, PROJECT, Measure
from bench.programs import BenchStack, kubectl, removed_afterwards, wait_until
from infra.local.api import request
from infra.local.settings import ClusterSettings
from setup import descendants
from simulation.cloud.model import new_state
from simulation.cluster import control_plane
from simulation.cluster.effects import GKE_POOL_LABEL, gke_nodes

HOSTS = 1024
WARM_UP_HOSTS = 64
"""Hosts of the job in the warm-up pair, which fills caches and does not count."""
GOAL = 1.2
JOB = "large"
NAMESPACE = "training"
SETTINGS = ClusterSettings(owner=str(PROJECT), stack="bench/large", name="bench-large", nodes=0, port=16988)
LIMIT_SECONDS = 600.0
"""Maximum seconds until all pods run, and until all are gone."""
POOL = {"name": "hosts", "project": "bench", "cluster": "bench", "location": "us-central1-a"}
MACHINE = {"machineType": "n2-standard-8"}


def config(hosts: int, context: str) -> dict[str, Any]:
    """Return the settings of Trainyard's program for a job in which each host uses a whole node."""
    platform = {
        "kind": "kubeconfig",
        "context": context,
        "kubeconfig": str(SETTINGS.kubeconfig),
        "namespace": NAMESPACE,
        "create_namespace": False,
        "image": "example.com/trainer:1",
        "bucket": {"kind": "url", "url": "gs://bench"},
    }
    resources = {"cpu": 6, "memory": "20Gi"}
    job = {"name": JOB, "recipe": "digits", "hosts": hosts, "resources": resources}
    return {"trainyard:platform": platform, "trainyard:jobs": [job]}


class PeakMemory:
    """Context that samples each second the memory of the cluster and of the programs that this program has started."""

    def __init__(self, settings: ClusterSettings) -> None:
        self.peak_bytes = 0
        self._cluster_folder = str(settings.folder)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(1.0):
            self.peak_bytes = max(self.peak_bytes, self._current_bytes())

    def _current_bytes(self) -> int:
        cluster, pages = set(), {}
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            try:
                pages[int(entry.name)] = int((entry / "statm").read_text().split()[1])
                if self._cluster_folder in (entry / "cmdline").read_text():
                    cluster.add(int(entry.name))
            except OSError:  # The process has ended.
                continue
        counted = {*descendants(os.getpid()), *cluster} - {os.getpid()}
        return sum(pages.get(pid, 0) for pid in counted) * os.sysconf("SC_PAGE_SIZE")


class LargeJob:
    """Large job that Trainyard (`ours`) or kubectl (`theirs`) runs on a cluster of simulated nodes.

    Neither side creates or deletes the namespace, because its deletion would add waits to the times: Kubernetes waits
    five seconds before it deletes a namespace, and Pulumi waits until the last pod has ended.
    """

    def __init__(self, folder: Path) -> None:
        self._stack = BenchStack("bench-large", PROJECT, folder)
        self._folder = folder
        self._seconds: dict[str, list[tuple[float, float]]] = {"ours": [], "theirs": []}
        self._memory: dict[str, list[int]] = {"ours": [], "theirs": []}

    def measure(self) -> list[Measure]:
        """Measure the time from the command until all pods run and until all pods are gone, and the peak memory."""
        kubectl(SETTINGS, "create", "namespace", NAMESPACE)
        for side in ("ours", "theirs"):
            self._once(side, WARM_UP_HOSTS)
        for number in range(1, PAIRS + 1):
            # Alternate the order of the sides, because the API server's memory grows with each run.
            for side in ("ours", "theirs") if number % 2 else ("theirs", "ours"):
                with PeakMemory(SETTINGS) as memory:
                    self._seconds[side].append(self._once(side, HOSTS))
                self._memory[side].append(memory.peak_bytes)
                running, gone = self._seconds[side][-1]
                progress = f"running in {running:.1f} s, gone in {gone:.1f} s, {memory.peak_bytes / 10**9:.2f} GB"
                print(f"  hosts-1024 {number}/{PAIRS} {side}: {progress}", file=sys.stderr, flush=True)
        return [
            self._measure("hosts-1024-running", "s", lambda side: [running for running, _ in self._seconds[side]]),
            self._measure("hosts-1024-gone", "s", lambda side: [gone for _, gone in self._seconds[side]]),
            self._measure("hosts-1024", "s", lambda side: [sum(both) for both in self._seconds[side]]),
            self._measure("hosts-1024-memory", "GB", lambda side: [each / 10**9 for each in self._memory[side]]),
        ]

    def _measure(self, name: str, unit: str, values_of: Callable[[str], list[float]]) -> Measure:
        ours, theirs = tuple(values_of("ours")), tuple(values_of("theirs"))
        return Measure(name=name, ours=ours, theirs=theirs, goal=GOAL, unit=unit)

    def _once(self, side: str, hosts: int) -> tuple[float, float]:
        """Return the seconds until all pods of a job of `hosts` hosts run, and until all are gone."""
        job, pods = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{JOB}", f"/api/v1/namespaces/{NAMESPACE}/pods?limit=1"
        objects = self._folder / f"objects-{hosts}.json"
        started = time.monotonic()
        if side == "ours":
            self._stack.up(config(hosts, SETTINGS.context))
        else:
            kubectl(SETTINGS, "apply", "--server-side", "-f", str(objects))
        wait_until(
            lambda: request(SETTINGS, "GET", job)["status"].get("ready") == hosts, LIMIT_SECONDS, "not all pods run"
        )
        running_seconds = time.monotonic() - started
        if side == "ours" and not objects.exists():
            self._stack.save_objects(objects)
        delete_started = time.monotonic()
        if side == "ours":
            self._stack.destroy()
        else:
            kubectl(SETTINGS, "delete", "--wait", "-f", str(objects))
        wait_until(lambda: not request(SETTINGS, "GET", pods)["items"], LIMIT_SECONDS, "not all pods are gone")
        return running_seconds, time.monotonic() - delete_started


def large_job() -> list[Measure]:
    """Run the measurements of the large job on a cluster with simulated nodes, as `make rehearse` uses it."""
    with tempfile.TemporaryDirectory(prefix="trainyard-bench-") as name, removed_afterwards(SETTINGS):
        folder = Path(name)
        new_state(folder, settings=control_plane.prepare(folder, SETTINGS))
        control_plane.start(folder, "bench", is_gke=True)
        nodes = gke_nodes({**POOL, "nodeConfig": MACHINE}, HOSTS)
        control_plane.set_nodes(SETTINGS, GKE_POOL_LABEL, POOL["name"], nodes)
        return LargeJob(folder / "stack").measure()
