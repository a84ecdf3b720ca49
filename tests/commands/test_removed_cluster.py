"""Follower of a cluster that another terminal removes, stops, or starts again with new keys."""

from __future__ import annotations

import io
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
from tests.local.conftest import port_above, wait_for

pytestmark = pytest.mark.cluster

SECOND_CLUSTER = replace(SETTINGS, stack="second", name="second", nodes=1, port=port_above(17000))


@pytest.fixture
def second() -> Iterator[ClusterSettings]:
    """Yield a cluster of one node with the job `waits`, which prints a step and sleeps."""
    lifecycle.stop(SECOND_CLUSTER)
    lifecycle.start(SECOND_CLUSTER, lambda _text: None)
    document = job("waits", "echo 'train step=1'; exec /usr/bin/sleep 600")
    document["metadata"]["namespace"] = "default"
    apply(SECOND_CLUSTER, "/apis/batch/v1/namespaces/default/jobs/waits", document)
    yield SECOND_CLUSTER
    lifecycle.stop(SECOND_CLUSTER)


def follow_during(settings: ClusterSettings, act: Callable[[io.StringIO], object]) -> tuple[int, list[str]]:
    """Follow the job, and call `act` once the job has printed a step. Return the status and the lines of the screen."""
    out = io.StringIO()
    with ThreadPoolExecutor(1) as threads:
        status = threads.submit(Follower(Cluster(str(settings.kubeconfig), "default"), ["waits"], Screen(out)).run)
        wait_for("a step is shown", lambda: "step=1" in out.getvalue())
        act(out)
        return status.result(120), out.getvalue().splitlines()


def test_follow_removed_cluster_ends_with_advice_to_recreate_it(
    second: ClusterSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STACK", "other")
    status, lines = follow_during(second, lambda _out: lifecycle.stop(second))
    assert status == 1
    assert lines[-1] == (
        "no longer following: the stack's cluster was removed, for example by `make down STACK=other`; "
        "`make up STACK=other` creates a new one"
    )


def test_follow_stopped_cluster_ends_with_advice_to_restart_it(
    second: ClusterSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_module, "GONE_SECONDS", 1.0)
    status, lines = follow_during(second, lambda _out: leftovers.end_processes(second.folder))
    assert status == 1
    assert lines[-1] == (
        "no longer following: the stack's cluster has stopped: none of its processes is running (for 1 s); "
        "`make up` starts it again with its data"
    )


def test_follow_cluster_with_new_keys_continues(second: ClusterSettings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "SILENT_SECONDS", 0.0)
    monkeypatch.setattr(follow_module, "GONE_SECONDS", 60.0)
    before = second.kubeconfig.read_bytes()
    status, lines = follow_during(second, lambda _out: lifecycle.start(replace(second, nodes=2), lambda _text: None))
    assert second.kubeconfig.read_bytes() != before
    # The job's host ended with the cluster, and the job has no retries.
    assert status == 1
    assert any(line.startswith("the API server answers again after ") for line in lines), lines
    assert any(line.startswith("waits: failed after ") for line in lines), lines
