"""A node is lost and stays away: what becomes of jobs with a host on it, by docs/kinds.md."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from infra.local import traces
from infra.local.settings import ClusterSettings
from tests.local.fault_jobs import KINDS, PODS, Cause, job_name
from tests.local.test_faults import NAMESPACE, Faults, running, wait_for
from workloads.pod import LOST_NODE_SECONDS
from workloads.spec import JobKind

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(2400)]

CAUSE: Cause = "node-lost"
WITHOUT_MPI: tuple[JobKind, ...] = tuple(kind for kind in KINDS if kind != "mpi-job")
"""mpirun does not notice a machine that no longer answers for minutes."""
SLACK_SECONDS = 15.0
"""How much later than its toleration says a pod may be told to go on a busy machine."""


class Lost:
    """The jobs on a cluster one of whose nodes is gone for good."""

    def __init__(self, settings: ClusterSettings, core: Any) -> None:
        self.faults, self._core = Faults(settings), core
        self.node = settings.node_names[1]
        for kind in WITHOUT_MPI:
            pods = PODS.get(kind, 2)
            wait_for(f"all of {kind} runs", lambda: self.faults.starts(kind, CAUSE).total() == pods)  # noqa: B023  # waited for here
        self.on_it = {pod.metadata.name for pod in self._pods() if pod.spec.node_name == self.node}

    def lose(self, settings: ClusterSettings) -> None:
        """End every process of the node; what would start them again is held."""
        inits = [pid for pid in traces.processes(settings.folder) if traces.is_namespace_init(pid)]
        node = traces.node_process(settings.folder, 1)
        assert node is not None
        os.kill(min(inits), signal.SIGSTOP)
        os.kill(node, signal.SIGKILL)

    def forget(self) -> None:
        """Do as a cloud does when a machine is no more."""
        self._core.delete_node(self.node)

    def told_to_go(self) -> list[float]:
        """Seconds from the node's silence being noticed to each of its pods being told to go; waits for all."""

        def told() -> list[Any]:
            pods = [pod for pod in self._pods() if pod.metadata.name in self.on_it]
            return [pod for pod in pods if pod.metadata.deletion_timestamp is not None]

        wait_for("all pods of the node are told to go", lambda: len(told()) == len(self.on_it))
        (taint,) = [each for each in self._core.read_node(self.node).spec.taints if each.effect == "NoExecute"]
        return [seconds(pod, taint.time_added) for pod in told()]

    def _pods(self) -> list[Any]:
        pods: list[Any] = self._core.list_namespaced_pod(NAMESPACE).items
        return pods


def seconds(pod: Any, since: datetime) -> float:
    """Seconds from a time to that at which a pod was told to go: its deletion's without its grace."""
    deadline: datetime = pod.metadata.deletion_timestamp
    return (deadline - since).total_seconds() - float(pod.metadata.deletion_grace_period_seconds)


@pytest.fixture(scope="module")
def lost(settings: ClusterSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lost]:
    """A job of each kind, of which pods were on the node."""
    with running(settings, tmp_path_factory.mktemp("lost"), WITHOUT_MPI, [CAUSE]) as stack:
        found = Lost(settings, stack.core())
        inits = [pid for pid in traces.processes(settings.folder) if traces.is_namespace_init(pid)]
        found.lose(settings)
        try:
            yield found
        finally:
            os.kill(min(inits), signal.SIGCONT)


def test_its_pods_are_told_to_go_when_their_toleration_has_passed(lost: Lost) -> None:
    assert lost.on_it
    for waited in lost.told_to_go():
        assert LOST_NODE_SECONDS <= round(waited) <= LOST_NODE_SECONDS + SLACK_SECONDS


def test_every_job_goes_on_with_pods_on_the_other_node(lost: Lost) -> None:
    lost.forget()
    begun = time.monotonic()
    for kind in WITHOUT_MPI:
        wait_for(f"{kind} is complete", lambda: lost.faults.seen(kind, CAUSE)[0].state == "complete")  # noqa: B023  # as above
        starts = lost.faults.starts(kind, CAUSE)
        gone = [name for name in lost.on_it if name.startswith(job_name(kind, CAUSE))]
        assert gone, f"{kind} had a pod on each node"
        again = [place for place, count in starts.items() if count == 2]
        assert set(starts.values()) <= {1, 2}
        assert len(again) == len(gone), (starts, gone)
    print(f"all complete {time.monotonic() - begun:.0f} s after the node was forgotten")
