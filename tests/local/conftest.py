"""Local cluster of the tests, and kubectl for it. The port of the cluster depends on the checkout."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.local import leftovers, lifecycle
from infra.local.settings import ClusterSettings
from tests.lanes import CLUSTER_EVENT

CHECKOUT = Path(__file__).resolve().parents[2]


def port_above(base: int) -> int:
    """Return this checkout's port, one of the 500 ports from `base`."""
    return base + zlib.crc32(str(CHECKOUT).encode()) % 500


SETTINGS = ClusterSettings(name="tests", nodes=2, port=port_above(16000), owner=f"{CHECKOUT}/tests/local")

Kubectl = Callable[..., str]


@pytest.fixture(scope="package")
def settings() -> Iterator[ClusterSettings]:
    """Yield the settings of a stopped cluster. Afterwards, stop the cluster and check that nothing is left."""
    lifecycle.stop(SETTINGS)
    yield SETTINGS
    lifecycle.stop(SETTINGS)
    assert leftovers.find(SETTINGS.folder, SETTINGS.cgroup) == []


@pytest.fixture
def cluster(settings: ClusterSettings) -> ClusterSettings:
    """Return the running cluster."""
    sys.audit(CLUSTER_EVENT)
    lifecycle.start(settings, lambda _text: None)
    return settings


@pytest.fixture
def kubectl(cluster: ClusterSettings) -> Kubectl:
    """Return a function that runs kubectl on the cluster, see `kubectl_of`."""
    return kubectl_of(cluster)


def run_kubectl(
    kubeconfig: Path, *words: str, document: dict[str, Any] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run kubectl and return its result. `document` is its standard input."""
    return subprocess.run(
        [str(lifecycle.programs_folder() / "kubectl"), *words],
        input=json.dumps(document) if document else None,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def kubectl_of(cluster: ClusterSettings) -> Kubectl:
    """Return a function that runs kubectl on a cluster, asserts its success, and returns the output."""

    def run(*words: str, document: dict[str, Any] | None = None) -> str:
        done = run_kubectl(cluster.kubeconfig, *words, document=document)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def wait_for(what: str, condition: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until `condition` is true. Fail after some seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.2)
