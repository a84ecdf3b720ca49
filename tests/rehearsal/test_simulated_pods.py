"""Pods on kwok's nodes run (even after a kill of kwok), complete, and make a pool grow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from commands.rehearse.folder import cluster_settings
from infra.local import lifecycle
from infra.local.api import JSON, NotFound, request
from infra.local.settings import ClusterSettings
from simulation import placement
from simulation.cloud.gcp import NODE_POOL
from simulation.cloud.model import SimulatedResource, edit_state, new_state
from simulation.cluster import control_plane
from simulation.cluster.effects import GKE_POOL_LABEL, gke_nodes
from tests.rehearsal.valid_inputs import T4_POOL

# The first run on a machine builds kwok.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]
PROJECT = Path(__file__).resolve().parents[2]
PODS = "/api/v1/namespaces/default/pods"
POD_TIMEOUT_SECONDS = 30.0
"""Maximum wait for a pod, in seconds. kwok's restart on a busy machine takes less, and a node's lease is longer."""


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterSettings]:
    """Yield the cluster of a rehearsal, with an empty cloud."""
    subprocess.run([sys.executable, "-m", "setup", "--rehearsal=s3"], cwd=PROJECT, check=True)
    settings = cluster_settings("pods-test", None)
    new_state(tmp_path, settings=control_plane.prepare(tmp_path, settings))
    try:
        control_plane.start(tmp_path, "cluster", is_gke=True)
        yield settings
    finally:
        lifecycle.stop(settings)


def programs_named(name: str, settings: ClusterSettings) -> list[int]:
    """Return the ids of the cluster's processes whose program file has this name."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                words = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                continue
            if words[0].endswith(f"/{name}") and any(str(settings.folder) in word for word in words):
                found.append(int(entry.name))
    return found


def phase(settings: ClusterSettings, pod: str) -> str:
    """Return the phase of a pod."""
    return str(request(settings, "GET", f"{PODS}/{pod}")["status"].get("phase"))


def run_pod(settings: ClusterSettings, name: str, node: str) -> None:
    """Create a pod on a node and wait until it runs."""
    containers = [{"name": "c", "image": "example.com/image:1"}]
    spec = {"nodeName": node, "containers": containers, "automountServiceAccountToken": False}
    started = time.monotonic()
    request(settings, "POST", PODS, {"metadata": {"name": name}, "spec": spec}, JSON)
    while phase(settings, name) != "Running":
        assert time.monotonic() - started < POD_TIMEOUT_SECONDS, f"pod {name} does not run"
        time.sleep(0.2)


def test_pods_run_after_kwok_was_killed(cluster: ClusterSettings) -> None:
    nodes = gke_nodes(T4_POOL, 1)
    control_plane.set_nodes(cluster, GKE_POOL_LABEL, T4_POOL["name"], nodes)
    name = nodes[0]["metadata"]["name"]
    run_pod(cluster, "before", name)
    # If the API server rejected its watches, kwok would only list the pods, at growing intervals.
    assert "watch ended with error" not in (cluster.folder / "logs" / "kwok.log").read_text(encoding="utf-8")
    [kwok] = programs_named("kwok", cluster)
    os.kill(kwok, signal.SIGKILL)
    run_pod(cluster, "after", name)
    assert lifecycle.is_running(cluster)


def test_let_jobs_complete_ignores_a_deleted_pod(cluster: ClusterSettings) -> None:
    nodes = gke_nodes(T4_POOL, 1)
    control_plane.set_nodes(cluster, GKE_POOL_LABEL, T4_POOL["name"], nodes)
    for name in ("first", "second"):
        run_pod(cluster, name, nodes[0]["metadata"]["name"])
    found = [replace(pod, job="job") for pod in placement.pods(cluster)]
    assert [pod.name for pod in found] == ["first", "second"]
    request(cluster, "DELETE", f"{PODS}/first?gracePeriodSeconds=0")
    with pytest.raises(NotFound):
        phase(cluster, "first")
    placement.let_jobs_complete(cluster, found)
    started = time.monotonic()
    while phase(cluster, "second") != "Succeeded":
        assert time.monotonic() - started < POD_TIMEOUT_SECONDS, "the other pod does not end"
        time.sleep(0.2)


def test_grow_in_two_zones_stops_at_the_maximum(cluster: ClusterSettings, tmp_path: Path) -> None:
    # The limits apply to the whole pool, so its number of nodes can be odd.
    scaling = {"totalMinNodeCount": 0, "totalMaxNodeCount": 3}
    zones = ["us-central1-a", "us-central1-b"]
    inputs = {**T4_POOL, "nodeLocations": zones, "nodeCount": None, "initialNodeCount": 0, "autoscaling": scaling}
    with edit_state(tmp_path) as state:
        pool = SimulatedResource(id="pool", type=NODE_POOL, urn="pool", inputs=inputs, outputs={})
        state.resources[pool.key] = pool
    spec = {
        "nodeSelector": {GKE_POOL_LABEL: T4_POOL["name"]},
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "c", "image": "example.com/image:1", "resources": {"requests": {"cpu": "3"}}}],
        "automountServiceAccountToken": False,
    }
    request(cluster, "POST", PODS, {"metadata": {"name": "waits"}, "spec": spec}, JSON)
    existing = placement.pods(cluster)
    # The first pod no longer exists, so no node is created for it.
    waiting = [replace(each, name="gone") for each in existing] + existing
    assert not placement.grow(tmp_path, waiting[:1])
    sizes = []
    while placement.grow(tmp_path, waiting):
        sizes.append(len(placement.nodes(cluster)))
    assert sizes == [1, 2, 3]
    assert {each["metadata"]["labels"]["topology.kubernetes.io/zone"] for each in placement.nodes(cluster)} == {*zones}
