"""Interruption of Pulumi during a creation or a deletion: its lock, its state, and the last line of the command."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands.stack_files import orphans_of, run_mark
from tests.commands.slow_stack import SlowStack
from tests.end_to_end.conftest import is_pulumi_in, processes


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowStack]:
    """Yield the slow stack in a folder backend."""
    found = SlowStack(tmp_path, f"file://{tmp_path / 'state'}")
    found.write()
    yield found
    found.close()
    assert orphans_of(run_mark(tmp_path, "dev")) == []


def test_up_interrupted_once_finishes_the_current_creation(slow: SlowStack) -> None:
    process = slow.start_and_wait()
    os.killpg(process.pid, signal.SIGINT)
    slow.wait_for_output(process, "still waiting for creating first")
    (slow.folder / "end").touch()
    output = slow.finish(process, 130)
    assert "make up: stopped; the state of stack dev is complete; `make up STACK=dev` continues from there" in output
    assert (slow.created, slow.pending, slow.locks) == (["first"], [], [])
    assert "second" in slow.finish(slow.start(), 0)
    assert slow.created == ["first", "second"]


def test_destroy_interrupted_once_is_complete_only_after_its_last_deletion(slow: SlowStack) -> None:
    (slow.folder / "end").touch()
    slow.finish(slow.start(), 0)
    output = slow.destroy_and_interrupt("second")
    assert slow.created == ["first"]
    assert "stack dev: not destroyed; stopped after" in output
    assert output.endswith(
        "stopped; the state of stack dev is complete; `make down STACK=dev` removes the rest, "
        "`make up STACK=dev` brings the stack up again\n"
    )
    output = slow.destroy_and_interrupt("first")
    assert slow.created == []
    assert "stack dev: destroyed after" in output
    assert output.endswith(
        "stopped; all resources of stack dev are deleted; `make down STACK=dev` then removes the stack\n"
    )


def test_up_interrupted_twice_names_the_unfinished_operations(slow: SlowStack) -> None:
    process = slow.start_and_wait()
    process.send_signal(signal.SIGINT)
    slow.wait_for_output(process, "stopping: Pulumi finishes")
    slow.wait_for_output(process, "still waiting for creating first")
    process.send_signal(signal.SIGINT)
    output = slow.finish(process, 130)
    assert "stack dev has unfinished operations (creating first)" in output
    assert (slow.created, slow.pending, slow.locks) == ([], ["first"], [])


def test_up_interrupted_three_times_leaves_a_lock_that_the_next_up_removes(slow: SlowStack) -> None:
    process = slow.start_and_wait()
    # A stopped engine handles no signal, so it neither ends nor removes its lock.
    for text in ("still waiting for creating first", "giving up"):
        process.send_signal(signal.SIGSTOP)
        engine = next(pid for pid in processes() if is_pulumi_in(pid, slow.folder))
        os.kill(engine, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        slow.wait_for_output(process, text)
    process.send_signal(signal.SIGINT)
    assert "`pulumi` was killed and may have left its lock" in slow.finish(process, 130)
    assert len(slow.locks) == 1
    (slow.folder / "end").touch()
    assert "removed the lock of a `pulumi`" in slow.finish(slow.start(), 0)
    assert slow.locks == []


def test_up_during_another_up_fails_and_names_its_pid(slow: SlowStack) -> None:
    first = slow.start_and_wait()
    output = slow.finish(slow.start(), 1)
    assert f"make up: stack dev: `make up` (pid {first.pid}) has been working on it since" in output
    assert "cancel" not in output
    (slow.folder / "end").touch()
    slow.finish(first, 0)


def test_up_after_a_killed_engine_removes_its_lock(slow: SlowStack) -> None:
    process = slow.start_and_wait()
    engine = next(pid for pid in processes() if is_pulumi_in(pid, slow.folder))
    os.kill(engine, signal.SIGKILL)
    slow.finish(process, 1)
    assert len(slow.locks) == 1
    (slow.folder / "end").touch()
    assert f"removed the lock of a `pulumi` (pid {engine}" in slow.finish(slow.start(), 0)
    assert slow.locks == []


def test_up_after_a_killed_command_waits_for_its_pulumi(slow: SlowStack) -> None:
    process = slow.start_and_wait()
    process.kill()
    second = slow.start()
    slow.wait_for_output(second, "was killed; waiting for `pulumi` to end")
    (slow.folder / "end").touch()
    slow.finish(second, 0)
    assert (slow.created, slow.locks) == (["first", "second"], [])
