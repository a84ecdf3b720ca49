"""Queries of a cluster: owners of pods, failure limits, proxies, and a local cluster that was removed."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from commands.monitor.cluster import Cluster, LocalCluster, client_settings
from infra.kubeconfig import one_context

CREATED = "2026-11-25T10:00:00Z"
LABELS = {"trainyard.dev/job": "ray"}


def item(name: str, uid: str, owner: str = "", **parts: Any) -> dict[str, Any]:
    """Return an object of the API. `owner` is the uid of its owner."""
    metadata = {"name": name, "uid": uid, "creationTimestamp": CREATED, "labels": LABELS}
    return {"metadata": {**metadata, "ownerReferences": [{"uid": owner}] if owner else []}, **parts}


OBJECTS = {
    "rayjobs": [item("ray", "job", spec={"rayClusterSpec": {"workerGroupSpecs": [{"replicas": 2}]}}, status={})],
    "rayclusters": [item("ray-abcde", "cluster", "job"), item("of-a-user", "other")],
    "jobs": [item("ray", "launcher", "job", spec={"backoffLimit": 2}, status={})],
    "pods": [
        item("ray-abcde-head", "1", "cluster", spec={"containers": [{}]}),
        item("ray-launcher", "2", "launcher", spec={"containers": [{}]}),
        item("of-a-user-head", "3", "other", spec={"containers": [{}]}),
    ],
}


def list_response(plural: str) -> SimpleNamespace:
    """Return the API's response to a list of these objects."""
    return SimpleNamespace(data=json.dumps({"items": OBJECTS[plural]}).encode())


def ray_cluster_client() -> Cluster:
    """Return a client of an API server that has `OBJECTS`."""
    made = Cluster.__new__(Cluster)
    made.namespace = "training"
    made.__dict__ |= {
        "_kinds": ["ray-job"],
        "_forbidden": None,
        "_owners": {},
        "_job_specs": {},
        "_batch": SimpleNamespace(list_namespaced_job=lambda _namespace, **_options: list_response("jobs")),
        "_core": SimpleNamespace(list_namespaced_pod=lambda _namespace, **_options: list_response("pods")),
        "_custom": SimpleNamespace(
            list_namespaced_custom_object=lambda _group, _version, _namespace, plural, **_options: list_response(plural)
        ),
    }
    return made


def test_pods_of_a_ray_cluster_have_its_ray_job_as_owner() -> None:
    found = ray_cluster_client()
    job = found.jobs(["ray"])["ray"]
    assert (job.kind, job.hosts, job.uid) == ("ray-job", 2, "job")
    assert {pod.name: pod.owner for pod in found.pods(["ray"])} == {
        "ray-abcde-head": "job",
        "ray-launcher": "job",
        "of-a-user-head": "other",
    }


def test_pods_of_a_job_have_the_failure_limit_of_the_job() -> None:
    found = ray_cluster_client()
    found.jobs(["ray"])
    assert {pod.name: pod.allowed_failures for pod in found.pods(["ray"])} == {
        "ray-abcde-head": None,
        "ray-launcher": 2,
        "of-a-user-head": None,
    }


def test_local_cluster_without_its_id_counts_as_removed(tmp_path: Path) -> None:
    uid = tmp_path / "uid"
    uid.write_text("1", encoding="utf-8")
    cluster = LocalCluster.of_kubeconfig(str(tmp_path / "keys" / "admin.kubeconfig"))
    assert cluster is not None
    assert not cluster.is_removed()
    uid.unlink()
    assert cluster.is_removed()
    assert LocalCluster.of_kubeconfig(str(tmp_path / "keys" / "admin.kubeconfig")) is None


@pytest.mark.parametrize(
    ("server", "entry", "proxy"),
    [
        ("https://127.0.0.1:16443", {}, None),
        ("https://127.0.0.1:16443", {"proxy-url": "socks5://127.0.0.1:1080"}, "socks5://127.0.0.1:1080"),
        ("https://203.0.113.1", {}, "http://proxy.example.com:3128"),
    ],
)
def test_client_settings_use_the_proxy_of_the_environment_only_for_other_machines(
    server: str, entry: dict[str, str], proxy: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy.example.com:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    file = tmp_path / "config"
    file.write_text(json.dumps(one_context("mine", {"server": server, **entry}, {})), encoding="utf-8")
    assert client_settings(str(file), None).proxy == proxy
