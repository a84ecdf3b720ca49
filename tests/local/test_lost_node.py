"""A lost node: its effects on jobs with a pod on it, as in docs/kinds.md, and its return."""

from __future__ import annotations

import io
import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from commands.monitor.cluster import Cluster
from commands.status import print_snapshot, take_snapshot
from infra.local import leftovers
from infra.local.api import ready_nodes
from infra.local.repair import TAINT
from infra.local.settings import ClusterSettings
from tests.local.fault_jobs import KINDS, PODS, NodeCause, job_name
from tests.local.test_faults import NAMESPACE, Faults, running_jobs, stable_name, wait_for
from workloads.objects import LOST_NODE_SECONDS
from workloads.spec import JobKind

pytestmark = [pytest.mark.cluster, pytest.mark.long, pytest.mark.timeout(2400)]

LAUNCHER = "-launcher"


class LostNode:
    """Node that a test can kill and bring back, with pods of a job of each kind."""

    def __init__(self, settings: ClusterSettings, core: Any, cause: NodeCause) -> None:
        self.faults, self._core, self._settings = Faults(settings), core, settings
        self._cause: NodeCause = cause
        self.node = settings.node_names[1]
        inits = [pid for pid in leftovers.processes(settings.folder) if leftovers.is_namespace_init(pid)]
        (self.supervisor,) = (pid for pid in inits if leftovers.environment_value(pid, "TRAINYARD_NODE_INDEX") is None)
        for kind in KINDS:
            pods = PODS.get(kind, 2)
            wait_for(f"all pods of {kind} have started", lambda: self.faults.starts(kind, self._cause).total() == pods)  # noqa: B023  # wait_for calls the lambda before the loop continues
        self.pod_names = {pod.metadata.name for pod in self._pods() if pod.spec.node_name == self.node}
        self._before = {kind: self.starts(kind) for kind in KINDS}
        self._uids = {pod.metadata.uid for pod in self._pods()}

    def kill_node(self) -> None:
        """Kill every process of the node. Stop the cluster's supervisor, which would restart them."""
        node = leftovers.node_process(self._settings.folder, 1)
        assert node is not None
        os.kill(self.supervisor, signal.SIGSTOP)
        os.kill(node, signal.SIGKILL)

    def kill_programs(self) -> None:
        """Kill the node's kubelet and containerd, and stop their supervisor. The containers keep running."""
        node = leftovers.node_process(self._settings.folder, 1)
        assert node is not None
        os.kill(node, signal.SIGSTOP)
        for name in ("kubelet", "containerd"):
            program = leftovers.node_program(self._settings.folder, 1, name)
            assert program is not None
            os.kill(program, signal.SIGKILL)

    def silent_since(self) -> datetime | None:
        """Return the time at which the node's silence was noticed, or None."""
        conditions = self._core.read_node(self.node).status.conditions
        times = [each.last_transition_time for each in conditions if each.type == "Ready" and each.status == "Unknown"]
        return times[0] if times else None

    def replacement_times(self) -> list[datetime]:
        """Return the creation times of the pods that replace the node's pods, without launchers of mpirun."""
        gone = {stable_name(name) for name in self.pod_names if LAUNCHER not in name}
        pods = [pod.metadata for pod in self._pods() if stable_name(pod.metadata.name) in gone]
        return [each.creation_timestamp for each in pods if each.uid not in self._uids]

    def resume_supervisor(self) -> None:
        """Resume the cluster's supervisor, which restarts the node."""
        os.kill(self.supervisor, signal.SIGCONT)

    def ready(self) -> set[str]:
        """Return the ready nodes."""
        return ready_nodes(self._settings)

    def signal_repair(self, number: signal.Signals) -> None:
        """Send SIGSTOP or SIGCONT to the process that repairs nodes."""
        (repair,) = (
            pid for pid in leftovers.processes(self._settings.folder) if b"infra.local.repair" in words_of(pid)
        )
        os.kill(repair, number)

    def taints(self) -> set[str]:
        """Return the keys of the node's taints."""
        return {taint.key for taint in self._core.read_node(self.node).spec.taints or []}

    def starts(self, kind: JobKind) -> Counter[str]:
        """Return the number of starts of a job's pods, by stable name.

        The launcher of mpirun is excluded, because it restarts with any worker.
        """
        found = self.faults.starts(kind, self._cause)
        return Counter({place: count for place, count in found.items() if not place.endswith(LAUNCHER)})

    def wait_for_replacements(self) -> None:
        """Wait until the job of each kind has replaced its pods on the node, and no other pods."""
        for kind in KINDS:
            gone = {stable_name(name) for name in self.pod_names if name.startswith(job_name(kind, self._cause))}
            gone.discard(f"{job_name(kind, self._cause)}{LAUNCHER}")
            assert gone, f"{kind} must have a pod on each node"
            expected = self._before[kind] | Counter({place: 2 for place in gone})
            wait_for(f"{kind} has replaced {gone}", lambda: self.starts(kind) == expected)  # noqa: B023  # wait_for calls the lambda before the loop continues

    def complete_jobs(self) -> None:
        """Let each job end, and check that it completes and that no pod started more than twice."""
        for kind in KINDS:
            (self.faults.folder / job_name(kind, self._cause) / "done").touch()
            wait_for(f"{kind} is complete", lambda: self.faults.seen(kind, self._cause)[0].state == "complete")  # noqa: B023  # wait_for calls the lambda before the loop continues
            assert set(self.starts(kind).values()) <= {1, 2}

    def status(self) -> str:
        """Return the output of `make status` for the jobs."""
        out = io.StringIO()
        names = [job_name(kind, self._cause) for kind in KINDS]
        print_snapshot(take_snapshot(Cluster(str(self._settings.kubeconfig), NAMESPACE), names), out)
        return out.getvalue()

    def deletion_delays(self) -> list[float]:
        """Wait until all pods of the node are marked for deletion.

        Return the seconds from the node's NoExecute taint to each mark.
        """

        def deleted_pods() -> list[Any]:
            pods = [pod for pod in self._pods() if pod.metadata.name in self.pod_names]
            return [pod for pod in pods if pod.metadata.deletion_timestamp is not None]

        wait_for("all pods of the node are marked for deletion", lambda: len(deleted_pods()) == len(self.pod_names))
        (taint,) = [each for each in self._core.read_node(self.node).spec.taints if each.effect == "NoExecute"]
        return [deletion_delay(pod, taint.time_added) for pod in deleted_pods()]

    def _pods(self) -> list[Any]:
        pods: list[Any] = self._core.list_namespaced_pod(NAMESPACE).items
        return pods


def words_of(pid: int) -> list[bytes]:
    """Return the command line of a process, empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def deletion_delay(pod: Any, since: datetime) -> float:
    """Return the seconds from a time to a pod's mark for deletion, whose timestamp includes the grace period."""
    deadline: datetime = pod.metadata.deletion_timestamp
    return (deadline - since).total_seconds() - float(pod.metadata.deletion_grace_period_seconds)


@pytest.fixture(scope="module")
def lost_node(settings: ClusterSettings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LostNode]:
    """Yield a killed node with pods of a job of each kind. The process that repairs nodes is stopped."""
    with running_jobs(settings, tmp_path_factory.mktemp("lost"), KINDS, ["node-lost"]) as stack:
        found = LostNode(settings, stack.core(), "node-lost")
        found.signal_repair(signal.SIGSTOP)
        found.kill_node()
        try:
            yield found
        finally:
            found.resume_supervisor()


def test_lost_node_pods_are_deleted_after_toleration(lost_node: LostNode) -> None:
    assert lost_node.pod_names
    delays = lost_node.deletion_delays()
    print("deleted", sorted(delays), "s after the node's silence was noticed")
    assert round(min(delays)) >= LOST_NODE_SECONDS


def test_lost_node_status_names_pods_and_remedy(lost_node: LostNode) -> None:
    text = lost_node.status()
    assert "nodes: 1 of 2 ready" in text
    assert f"{lost_node.node} has not answered since 20" in text
    assert f"`kubectl delete node {lost_node.node}`" in text
    for name in (each for each in lost_node.pod_names if LAUNCHER not in each):
        (row,) = [line for line in text.splitlines() if f" {name} " in line]
        assert f"its node {lost_node.node} has not answered since 20" in row


def test_lost_node_jobs_continue_on_other_node(lost_node: LostNode) -> None:
    assert all(set(lost_node.starts(kind).values()) == {1} for kind in KINDS), (
        "no pod may be recreated before the repair resumes"
    )
    lost_node.signal_repair(signal.SIGCONT)
    begun = time.monotonic()
    lost_node.wait_for_replacements()
    print(f"all pods were replaced {time.monotonic() - begun:.0f} s after the repair was resumed")
    assert TAINT["key"] in lost_node.taints()
    lost_node.complete_jobs()


def test_lost_node_is_schedulable_after_return(lost_node: LostNode) -> None:
    lost_node.resume_supervisor()
    wait_for(f"{lost_node.node} is ready", lambda: lost_node.node in lost_node.ready())
    wait_for("the node accepts pods again", lambda: not lost_node.taints())
