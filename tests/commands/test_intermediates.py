"""Pods that a job owns through another object of its operator belong to the job."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

from commands.monitor.cluster import Cluster

CREATED = "2026-11-25T10:00:00Z"
LABELS = {"trainyard.dev/job": "ray"}


def item(name: str, uid: str, owner: str = "", **parts: Any) -> dict[str, Any]:
    """Return an object with an owner."""
    metadata = {"name": name, "uid": uid, "creationTimestamp": CREATED, "labels": LABELS}
    return {"metadata": {**metadata, "ownerReferences": [{"uid": owner}] if owner else []}, **parts}


OBJECTS = {
    "rayjobs": [item("ray", "job", spec={"rayClusterSpec": {"workerGroupSpecs": [{"replicas": 2}]}}, status={})],
    "rayclusters": [item("ray-abcde", "cluster", "job"), item("of-a-user", "other")],
    "jobs": [item("ray", "launcher", "job", spec={}, status={})],
    "pods": [
        item("ray-abcde-head", "1", "cluster", spec={"containers": [{}]}),
        item("ray-launcher", "2", "launcher", spec={"containers": [{}]}),
        item("of-a-user-head", "3", "other", spec={"containers": [{}]}),
    ],
}


def listed(plural: str) -> SimpleNamespace:
    return SimpleNamespace(data=json.dumps({"items": OBJECTS[plural]}).encode())


def cluster() -> Cluster:
    """Return a client of an API that has these objects."""
    made = Cluster.__new__(Cluster)
    made.namespace = "training"
    made.__dict__ |= {
        "_kinds": ["RayJob"],
        "_refused": None,
        "_owners": {},
        "_batch": SimpleNamespace(list_namespaced_job=lambda _namespace, **_options: listed("jobs")),
        "_core": SimpleNamespace(list_namespaced_pod=lambda _namespace, **_options: listed("pods")),
        "_custom": SimpleNamespace(
            list_namespaced_custom_object=lambda _group, _version, _namespace, plural, **_options: listed(plural)
        ),
    }
    return made


def test_pods_of_a_ray_cluster_belong_to_its_job() -> None:
    found = cluster()
    job = found.jobs(["ray"])["ray"]
    assert (job.kind, job.hosts, job.uid) == ("ray-job", 2, "job")
    assert {pod.name: pod.owner for pod in found.pods(["ray"])} == {
        "ray-abcde-head": "job",
        "ray-launcher": "job",
        "of-a-user-head": "other",
    }
