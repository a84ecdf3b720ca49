"""Pulumi itself, interrupted while it creates a resource: its lock, its state and what the command says of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from commands.orphans import orphans_of, run_mark
from tests.end_to_end.conftest import is_pulumi_in, processes

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 120.0
PROGRAM = """
import os
import pulumi
from pulumi import dynamic

class Provider(dynamic.ResourceProvider):
    def create(self, props):
        import time
        from pathlib import Path
        folder = Path(props["folder"])
        (folder / "creating").touch()
        while not (folder / "end").exists():
            time.sleep(0.02)
        return dynamic.CreateResult("first", props)

class Slow(dynamic.Resource):
    def __init__(self, name, opts=None):
        super().__init__(Provider(), name, {"folder": os.getcwd()}, opts)

first = Slow("first")
Slow("second", pulumi.ResourceOptions(depends_on=[first]))
"""
COMMAND = """
import sys
from pathlib import Path
from commands import interrupts, stack, stack_lock
stack.PROJECT = Path(sys.argv[1])
stack_lock.STATE = stack.PROJECT / "own"
interrupts.REPORT_SECONDS = 0.5

def main():
    try:
        with stack_lock.only_command("dev", "`make up`"):
            stack.recover("dev")
            stack.ensure_stack("dev")
            stack.pulumi("up", "--yes", "--skip-preview", "--stack", "dev")
    except stack.PulumiFailed as error:
        print(f"make up: {error}", file=sys.stderr)
        return 1
    return 0

sys.exit(interrupts.run_command("make up", main))
"""


@dataclass
class Slow:
    """A project whose first resource is being created until a file is there."""

    folder: Path
    _started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self) -> subprocess.Popen[str]:
        """Start an `up`."""
        # A session of its own, so that a test can interrupt its group as a terminal does.
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, str(self.folder)],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def start_and_wait(self) -> subprocess.Popen[str]:
        """Start an `up`; returns when its first resource is being created."""
        process = self.start()
        self.until((self.folder / "creating").exists)
        return process

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "PULUMI_BACKEND_URL": f"file://{self.folder / 'state'}",
            "PULUMI_CONFIG_PASSPHRASE": "for tests",
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        }

    def until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + LIMIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.02)

    def until_said(self, process: subprocess.Popen[str], text: str) -> None:
        """Read what the command says until it has said this."""
        assert process.stdout is not None
        for line in process.stdout:
            if text in line:
                return
        raise AssertionError(f"the command ended with {process.wait()} and never said {text!r}")

    def end(self, process: subprocess.Popen[str], status: int) -> str:
        """Wait for the command's end; returns the rest of what it said."""
        said, _ = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == status, said
        assert "Traceback" not in said
        return said

    @property
    def locks(self) -> list[Path]:
        return sorted((self.folder / "state" / ".pulumi" / "locks").glob("**/*.json"))

    @property
    def deployment(self) -> dict[str, Any]:
        file = self.folder / "state" / ".pulumi" / "stacks" / "slow" / "dev.json"
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["checkpoint"]["latest"]
        return found

    @property
    def created(self) -> list[str]:
        return [each["urn"].rpartition("::")[2] for each in self.deployment["resources"] if each.get("id") == "first"]

    @property
    def pending(self) -> list[str]:
        return [each["resource"]["urn"].rpartition("::")[2] for each in self.deployment.get("pending_operations") or []]


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[Slow]:
    runtime = {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}}
    (tmp_path / "Pulumi.yaml").write_text(json.dumps({"name": "slow", "runtime": runtime}), encoding="utf-8")
    (tmp_path / "__main__.py").write_text(PROGRAM, encoding="utf-8")
    (tmp_path / "state").mkdir()
    found = Slow(tmp_path)
    yield found
    (tmp_path / "end").touch()
    for process in found._started:
        process.kill()
        process.communicate()
    for pid in processes():
        if is_pulumi_in(pid, tmp_path):
            os.kill(pid, signal.SIGKILL)
    assert orphans_of(run_mark(tmp_path, "dev")) == []


def test_interrupted_group_finishes_what_is_being_created(slow: Slow) -> None:
    process = slow.start_and_wait()
    os.killpg(process.pid, signal.SIGINT)
    slow.until_said(process, "still waiting for creating first")
    (slow.folder / "end").touch()
    said = slow.end(process, 130)
    assert "make up: stopped; the state of stack dev is complete; `make up STACK=dev` goes on from there" in said
    assert (slow.created, slow.pending, slow.locks) == (["first"], [], [])
    assert "second" in slow.end(slow.start(), 0)
    assert slow.created == ["first", "second"]


def test_interrupted_twice_names_what_is_pending(slow: Slow) -> None:
    process = slow.start_and_wait()
    process.send_signal(signal.SIGINT)
    slow.until_said(process, "stopping: Pulumi finishes")
    slow.until_said(process, "still waiting for creating first")
    process.send_signal(signal.SIGINT)
    said = slow.end(process, 130)
    assert "stack dev has unfinished operations (creating first)" in said
    assert (slow.created, slow.pending, slow.locks) == ([], ["first"], [])


def test_interrupted_three_times_leaves_what_the_next_command_clears(slow: Slow) -> None:
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


def test_second_command_names_the_first(slow: Slow) -> None:
    first = slow.start_and_wait()
    said = slow.end(slow.start(), 1)
    assert f"make up: stack dev: `make up` (pid {first.pid}) has been working on it since" in said
    assert "cancel" not in said
    (slow.folder / "end").touch()
    slow.end(first, 0)


def test_killed_engine_leaves_no_process_and_its_lock_goes(slow: Slow) -> None:
    process = slow.start_and_wait()
    engine = next(pid for pid in processes() if is_pulumi_in(pid, slow.folder))
    os.kill(engine, signal.SIGKILL)
    slow.end(process, 1)
    assert len(slow.locks) == 1
    (slow.folder / "end").touch()
    assert f"removed the lock of a `pulumi` (pid {engine}" in slow.end(slow.start(), 0)
    assert slow.locks == []


def test_killed_command_is_waited_for(slow: Slow) -> None:
    process = slow.start_and_wait()
    process.kill()
    second = slow.start()
    slow.until_said(second, "was killed; waiting for it to end")
    (slow.folder / "end").touch()
    slow.end(second, 0)
    assert (slow.created, slow.locks) == (["first", "second"], [])
