"""Fixtures of the command tests: a cluster, kubectl, and restored signal handlers."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from commands.interrupts import SIGNALS
from commands.monitor.cluster import Cluster
from infra.local import leftovers, lifecycle
from infra.local.settings import PAUSE_IMAGE, ClusterSettings
from infra.naming import JOB_LABEL
from tests.local.conftest import CHECKOUT, Kubectl, kubectl_of, port_above

SETTINGS = ClusterSettings(name="follow", nodes=2, port=port_above(16500), owner=f"{CHECKOUT}/tests/commands")
HOST_FOLDERS = ("usr", "lib", "lib64")
"""Folders of this machine that pods mount, because the pause image has no shell."""

Apply = Callable[[dict[str, Any]], None]


def job(name: str, script: str = "", **changes: Any) -> dict[str, Any]:
    """Return an Indexed Job that runs a shell script, or the pause image if `script` is empty.

    `changes` can set `image`, `cpu` and `hosts` (by default 1). Its other keys go into the Job's spec.
    """
    container: dict[str, Any] = {
        "name": "trainer",
        "image": changes.pop("image", PAUSE_IMAGE),
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": changes.pop("cpu", "10m")}},
        "volumeMounts": [{"name": each, "mountPath": f"/{each}", "readOnly": True} for each in HOST_FOLDERS],
    }
    if script:
        container["command"] = ["/usr/bin/sh", "-c", script]
    hosts = changes.pop("hosts", 1)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "completionMode": "Indexed",
            "completions": hosts,
            "parallelism": hosts,
            "backoffLimit": 0,
            **changes,
            "template": {
                "metadata": {"labels": {JOB_LABEL: name}},
                "spec": {
                    "restartPolicy": "Never",
                    "terminationGracePeriodSeconds": 0,
                    "containers": [container],
                    "volumes": [{"name": each, "hostPath": {"path": f"/{each}"}} for each in HOST_FOLDERS],
                },
            },
        },
    }


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    """Restore the signal handlers after a test, because `run_command` leaves signals ignored."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(scope="package")
def local() -> Iterator[ClusterSettings]:
    """Yield the running cluster. Afterwards, stop it and check that nothing is left."""
    lifecycle.stop(SETTINGS)
    lifecycle.start(SETTINGS, lambda _text: None)
    yield SETTINGS
    lifecycle.stop(SETTINGS)
    assert leftovers.find(SETTINGS.folder, SETTINGS.cgroup) == []


@pytest.fixture
def cluster(local: ClusterSettings) -> Cluster:
    """Return the commands' client of the cluster, for the namespace `default`."""
    return Cluster(str(local.kubeconfig), "default")


@pytest.fixture
def kubectl(local: ClusterSettings) -> Kubectl:
    """Return a function that runs kubectl on the local cluster."""
    return kubectl_of(local)


@pytest.fixture
def apply(kubectl: Kubectl) -> Apply:
    """Return a function that creates an object in the cluster."""

    def run(document: dict[str, Any]) -> None:
        kubectl("apply", "--server-side", "-f", "-", document=document)

    return run
