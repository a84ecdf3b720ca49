"""Deploy, damage, interrupt and destroy stacks of two checkouts. After each action, compare with the expected state.

One test has fixed actions. The other runs one random sequence of actions, or a hundred with TRAINYARD_TESTS=soak.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from infra.local import leftovers, lifecycle
from infra.local.settings import ClusterSettings, stack_cluster
from tests.conftest import SOAK
from tests.end_to_end.conftest import Checkout, copy_project, is_pulumi_in, processes

NUM_SEQUENCES = 100 if SOAK else 1
ACTIONS_PER_SEQUENCE = 8
LIMIT_SECONDS = 240.0
"""Longest time of a command, in seconds."""
DELAYS = st.floats(min_value=0.0, max_value=15.0)
"""Seconds after which a command is interrupted. An `up` takes about 15 s."""
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(NUM_SEQUENCES * 1200)]


@dataclass
class Stack:
    """Stack of a checkout, and what the model expects of it."""

    checkout: Checkout
    name: str
    is_down: bool = True
    """True if this machine must have no leftovers of the stack."""
    has_checkpoint: bool = False
    """True if the bucket must have the checkpoint."""
    expected_init_pid: int | None = None
    """Process id, on this machine, of the cluster's init process if the process must keep running, else None."""

    @property
    def cluster(self) -> ClusterSettings:
        """Cluster of the stack."""
        return stack_cluster(str(self.checkout.folder), self.name)

    @property
    def checkpoint(self) -> Path:
        """File in the bucket that stands in for a checkpoint."""
        return self.cluster.bucket / "checkpoint"

    def write_settings(self, nodes: int) -> None:
        """Write the stack's settings. The clusters of all stacks have the same name."""
        platform = {"kind": "local", "name": "same", "nodes": nodes}
        content = {"config": {"trainyard:platform": platform, "trainyard:jobs": []}}
        (self.checkout.folder / f"Pulumi.{self.name}.yaml").write_text(json.dumps(content), encoding="utf-8")

    def init_pid(self) -> int | None:
        """Return the process id, on this machine, of the cluster's init process, or None if it does not run."""
        found = [pid for pid in leftovers.processes(self.cluster.folder) if leftovers.is_namespace_init(pid)]
        return next((pid for pid in found if leftovers.environment_value(pid, "TRAINYARD_NODE_INDEX") is None), None)


class Stacks(RuleBasedStateMachine):
    """Actions of users on stacks, and damage to stacks."""

    checkouts: ClassVar[list[Checkout]] = []

    def __init__(self) -> None:
        super().__init__()
        first, second = self.checkouts
        self.stacks = [Stack(first, "one"), Stack(first, "two"), Stack(second, "one")]

    @initialize()
    def begin(self) -> None:
        """Write each stack's settings."""
        for stack in self.stacks:
            stack.write_settings(nodes=1)

    def running_stacks(self) -> list[Stack]:
        """Return the stacks whose cluster must run."""
        return [stack for stack in self.stacks if stack.expected_init_pid is not None]

    def make(self, stack: Stack, target: str, status: int | None = 0, stop: Callable[[int], None] | None = None) -> str:
        """Run a make target, and return its output. Meanwhile, call `stop` with the id of its process group."""
        process = stack.checkout.start("make", target, f"STACK={stack.name}", own_group=True)
        if stop:
            stop(process.pid)
        try:
            printed = process.communicate(timeout=LIMIT_SECONDS)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"make {target} does not end:\n{process.communicate()[0]}") from None
        print(f"--- make {target} STACK={stack.name} in {stack.checkout.folder}: {process.returncode}\n{printed}")
        assert "Traceback (most recent call last)" not in printed, printed
        assert status is None or process.returncode == status, printed
        return printed

    @rule(index=st.integers(0, 2))
    def up(self, index: int) -> None:
        """Deploy a stack."""
        stack = self.stacks[index]
        self.make(stack, "up")
        self.check_deployed(stack)

    def check_deployed(self, stack: Stack) -> None:
        """Check that a deployed stack is complete, and write its checkpoint."""
        found = lifecycle.saved_settings(stack.cluster.folder)
        assert found
        assert lifecycle.is_running(found)
        assert not stack.has_checkpoint or stack.checkpoint.exists(), "the checkpoint is lost"
        stack.checkpoint.touch()
        stack.is_down, stack.has_checkpoint, stack.expected_init_pid = False, True, stack.init_pid()
        assert stack.expected_init_pid

    @rule(index=st.integers(0, 2))
    def down(self, index: int) -> None:
        """Destroy a stack."""
        stack = self.stacks[index]
        printed = self.make(stack, "down")
        assert "nothing is left" in printed or "nothing to do" in printed
        stack.is_down, stack.has_checkpoint, stack.expected_init_pid = True, False, None

    @rule(index=st.integers(0, 2), moment=DELAYS, command=st.sampled_from(["up", "down"]), hard=st.booleans())
    def interrupt(self, index: int, moment: float, command: str, hard: bool) -> None:
        """Send Ctrl-C, or kill Pulumi if `hard`, during an `up` or `down`."""
        stack = self.stacks[index]

        def stop(group: int) -> None:
            time.sleep(moment)
            if hard:
                kill_pulumi(stack)
            else:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(group, signal.SIGINT)

        self.make(stack, command, status=None, stop=stop)
        stack.is_down, stack.expected_init_pid = False, None
        stack.has_checkpoint = stack.has_checkpoint and command == "up"

    @precondition(lambda self: self.running_stacks())
    @rule(data=st.data(), node=st.booleans())
    def kill_init(self, data: st.DataObject, node: bool) -> None:
        """Kill process 1 of a cluster, or of its first node if `node`. A node restarts by itself."""
        stack = data.draw(st.sampled_from(self.running_stacks()))
        victim = leftovers.node_process(stack.cluster.folder, 0) if node else stack.expected_init_pid
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
        if not node:
            stack.expected_init_pid = None

    @rule(index=st.integers(0, 2), nodes=st.integers(1, 2))
    def edit_nodes(self, index: int, nodes: int) -> None:
        """Change the number of nodes in a stack's settings. The next `up` applies the change."""
        self.stacks[index].write_settings(nodes)

    @precondition(lambda self: self.running_stacks())
    @rule(data=st.data(), whole=st.booleans())
    def delete_files(self, data: st.DataObject, whole: bool) -> None:
        """Delete the kubeconfig of a running cluster, or its whole folder if `whole`."""
        stack = data.draw(st.sampled_from(self.running_stacks()))
        if whole:
            delete_cluster_folder(stack)
        else:
            stack.cluster.kubeconfig.unlink(missing_ok=True)
            assert "`make up" in self.make(stack, "status", status=None)

    @invariant()
    def check_stacks(self) -> None:
        """Check that a destroyed stack has left nothing, and that each other stack has what the model expects."""
        for stack in self.stacks:
            if stack.is_down:
                assert lifecycle.find_leftovers(stack.cluster) == []
            if stack.has_checkpoint:
                assert stack.checkpoint.exists()
            if stack.expected_init_pid is not None:
                assert stack.init_pid() == stack.expected_init_pid

    def teardown(self) -> None:
        """Destroy every stack, which must always work."""
        for stack in self.stacks:
            self.make(stack, "down")
            assert lifecycle.find_leftovers(stack.cluster) == []


def kill_pulumi(stack: Stack) -> None:
    """Kill each Pulumi that runs in the stack's checkout."""
    for pid in processes():
        if is_pulumi_in(pid, stack.checkout.folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def delete_cluster_folder(stack: Stack) -> None:
    """Delete the folder of the stack's cluster while its processes run."""
    shutil.rmtree(stack.cluster.folder, ignore_errors=True)
    stack.has_checkpoint, stack.expected_init_pid = False, None


@pytest.fixture
def two_checkouts(tmp_path: Path) -> list[Checkout]:
    """Return two separate checkouts of this project."""
    folders = [tmp_path / name for name in ("first", "second")]
    for folder in folders:
        copy_project(folder)
    return [Checkout(folder) for folder in folders]


def test_damaged_stack_recovers_and_other_stacks_are_unaffected(two_checkouts: list[Checkout]) -> None:
    Stacks.checkouts = two_checkouts
    machine = Stacks()
    machine.begin()
    first, same_name = machine.stacks[0], machine.stacks[2]
    try:
        machine.up(0)
        machine.up(2)
        delete_cluster_folder(first)
        machine.up(0)
        machine.check_stacks()
        (first.checkout.folder / f"Pulumi.{first.name}.yaml").unlink()
        machine.down(0)
        machine.check_stacks()
        first.write_settings(nodes=1)

        def kill_during_start(_group: int) -> None:
            deadline = time.monotonic() + LIMIT_SECONDS
            while not leftovers.processes(first.cluster.folder):
                assert time.monotonic() < deadline
                time.sleep(0.05)
            kill_pulumi(first)

        machine.make(first, "up", status=2, stop=kill_during_start)
        assert lifecycle.find_leftovers(first.cluster)
        machine.down(0)
        machine.check_stacks()
        assert same_name.checkpoint.exists()
    finally:
        machine.teardown()


def test_stacks_after_random_actions_keep_data_and_leave_nothing(two_checkouts: list[Checkout]) -> None:
    Stacks.checkouts = two_checkouts
    Stacks.TestCase.settings = settings(
        max_examples=NUM_SEQUENCES,
        stateful_step_count=ACTIONS_PER_SEQUENCE,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        derandomize=False,
    )
    Stacks.TestCase("runTest").runTest()
