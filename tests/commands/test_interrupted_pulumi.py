"""Interruption of Pulumi during a creation: its lock, its state and the report of `make up`."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from commands.stack_files import orphans_of, run_mark
from tests.commands.slow_stack import Slow
from tests.end_to_end.conftest import is_pulumi_in, processes


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Slow]:
    """Yield the stack, in a folder backend."""
    found = Slow(tmp_path, f"file://{tmp_path / 'state'}")
    found.write()
    yield found
    found.close()
    assert orphans_of(run_mark(tmp_path, "dev")) == []


def test_up_interrupted_once_finishes_the_current_creation(slow: Slow) -> None:
    process = slow.start_and_wait()
    os.killpg(process.pid, signal.SIGINT)
    slow.until_said(process, "still waiting for creating first")
    (slow.folder / "end").touch()
    said = slow.end(process, 130)
    assert "make up: stopped; the state of stack dev is complete; `make up STACK=dev` continues from there" in said
    assert (slow.created, slow.pending, slow.locks) == (["first"], [], [])
    assert "second" in slow.end(slow.start(), 0)
    assert slow.created == ["first", "second"]


def test_destroy_interrupted_once_is_complete_only_after_its_last_deletion(slow: Slow) -> None:
    (slow.folder / "end").touch()
    slow.end(slow.start(), 0)
    said = slow.destroy_and_interrupt("second")
    assert slow.created == ["first"]
    assert "stack dev: not destroyed; stopped after" in said
    assert said.endswith(
        "stopped; the state of stack dev is complete; `make down STACK=dev` removes the rest, "
        "`make up STACK=dev` brings the stack up again\n"
    )
    said = slow.destroy_and_interrupt("first")
    assert slow.created == []
    assert "stack dev: destroyed after" in said
    assert said.endswith("stopped; all resources of stack dev are deleted; `make down STACK=dev` finishes the rest\n")


def test_up_interrupted_twice_names_the_unfinished_operations(slow: Slow) -> None:
    process = slow.start_and_wait()
    process.send_signal(signal.SIGINT)
    slow.until_said(process, "stopping: Pulumi finishes")
    slow.until_said(process, "still waiting for creating first")
    process.send_signal(signal.SIGINT)
    said = slow.end(process, 130)
    assert "stack dev has unfinished operations (creating first)" in said
    assert (slow.created, slow.pending, slow.locks) == ([], ["first"], [])


def test_up_interrupted_three_times_leaves_a_lock_that_the_next_up_removes(slow: Slow) -> None:
    process = slow.start_and_wait()
    for text in ("still waiting for creating first", "giving up"):
        process.send_signal(signal.SIGSTOP)
        engine = next(pid for pid in processes() if is_pulumi_in(pid, slow.folder))
        os.kill(engine, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGCONT)
        slow.until_said(process, text)
    process.send_signal(signal.SIGINT)
    assert "`pulumi` was killed and may have left its lock" in slow.end(process, 130)
    assert len(slow.locks) == 1
    (slow.folder / "end").touch()
    assert "removed the lock of a `pulumi`" in slow.end(slow.start(), 0)
    assert slow.locks == []


def test_up_during_another_up_fails_and_names_its_pid(slow: Slow) -> None:
    first = slow.start_and_wait()
    said = slow.end(slow.start(), 1)
    assert f"make up: stack dev: `make up` (pid {first.pid}) has been working on it since" in said
    assert "cancel" not in said
    (slow.folder / "end").touch()
    slow.end(first, 0)


def test_up_after_a_killed_engine_removes_its_lock(slow: Slow) -> None:
    process = slow.start_and_wait()
    engine = next(pid for pid in processes() if is_pulumi_in(pid, slow.folder))
    os.kill(engine, signal.SIGKILL)
    slow.end(process, 1)
    assert len(slow.locks) == 1
    (slow.folder / "end").touch()
    assert f"removed the lock of a `pulumi` (pid {engine}" in slow.end(slow.start(), 0)
    assert slow.locks == []


def test_up_after_a_killed_command_waits_for_its_pulumi(slow: Slow) -> None:
    process = slow.start_and_wait()
    process.kill()
    second = slow.start()
    slow.until_said(second, "was killed; waiting for it to end")
    (slow.folder / "end").touch()
    slow.end(second, 0)
    assert (slow.created, slow.locks) == (["first", "second"], [])
