"""Following on a cluster that another terminal removes, stops, or starts with new keys."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from commands import follow as follow_module
from commands.follow import Follower
from commands.monitor.cluster import Cluster
from commands.monitor.screen import Screen
from infra.local import leftovers, lifecycle
from infra.local.api import apply
from infra.local.settings import ClusterSettings
from tests.commands.conftest import SETTINGS, job
from tests.local.conftest import port_above

pytestmark = pytest.mark.cluster

LOST_CLUSTER = replace(SETTINGS, stack="away", name="away", nodes=1, port=port_above(17000))


def wait_for(what: str, condition: Callable[[], bool]) -> None:
    """Fail if `condition` does not become true within a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.2)


@pytest.fixture
def away() -> Iterator[ClusterSettings]:
    """Yield a cluster of one node with a waiting job."""
    lifecycle.stop(LOST_CLUSTER)
    lifecycle.start(LOST_CLUSTER, lambda _text: None)
    document = job("waits", "echo 'train step=1'; exec /usr/bin/sleep 600")
    document["metadata"]["namespace"] = "default"
    apply(LOST_CLUSTER, "/apis/batch/v1/namespaces/default/jobs/waits", document)
    yield LOST_CLUSTER
    lifecycle.stop(LOST_CLUSTER)


def follow_during(settings: ClusterSettings, act: Callable[[io.StringIO], object]) -> tuple[int, list[str]]:
    """Follow the job and call `act` once it has printed a step. Return the status and the lines of the screen."""
    out = io.StringIO()
    with ThreadPoolExecutor(1) as threads:
        status = threads.submit(Follower(Cluster(str(settings.kubeconfig), "default"), ["waits"], Screen(out)).run)
        wait_for("a step is shown", lambda: "step=1" in out.getvalue())
        act(out)
        return status.result(120), out.getvalue().splitlines()


def test_follow_removed_cluster_ends_with_advice_to_recreate_it(
    away: ClusterSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STACK", "other")
    status, lines = follow_during(away, lambda _out: lifecycle.stop(away))
    assert status == 1
    assert lines[-1] == (
        "no longer following: the stack's cluster was removed, as `make down STACK=other` does; "
        "`make up STACK=other` creates a new one"
    )


def test_follow_stopped_cluster_ends_with_advice_to_restart_it(
    away: ClusterSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_module, "GONE_SECONDS", 1.0)
    status, lines = follow_during(away, lambda _out: leftovers.end_processes(away.folder))
    assert status == 1
    assert lines[-1] == (
        "no longer following: the stack's cluster has stopped: none of its processes is running (for 1 s); "
        "`make up` starts it again with its data"
    )


def test_follow_cluster_with_new_keys_continues(away: ClusterSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(follow_module, "GONE_SECONDS", 60.0)
    before = away.kubeconfig.read_bytes()
    status, lines = follow_during(away, lambda _out: lifecycle.start(replace(away, nodes=2), lambda _text: None))
    assert away.kubeconfig.read_bytes() != before
    # The job's host ended with the cluster, and the job has no retries.
    assert status == 1
    assert any(line.startswith("the API server answers again after ") for line in lines), lines
    assert any(line.startswith("waits: failed after ") for line in lines), lines
