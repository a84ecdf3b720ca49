"""`pulumi up` and `destroy` on simulated clouds, interrupted at random moments: the next command knows all resources.

The test interrupts two commands, or fifty with TRAINYARD_TESTS=soak. TRAINYARD_SEED repeats the moments of a run.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from commands.stack_files import orphans_of, run_mark
from tests.conftest import SOAK
from tests.rehearsal.simulated_stack import ROOT, SimulatedStack
from tests.rehearsal.test_killed import CASES, assert_nothing_is_left

TRIES = 50 if SOAK else 2
MAX_DELAY_SECONDS = 6.0
"""Maximum time from Pulumi's start to the interruption, in seconds."""
COMMAND_TIMEOUT_SECONDS = 300.0
"""Maximum duration of a command, in seconds."""
COMMAND = """
import sys
from pathlib import Path
from commands import interrupts, cloud_inventory, stack_files, stack
stack.PROJECT = cloud_inventory.PROJECT = Path(sys.argv[1])
stack.program_folder = lambda: stack.PROJECT
stack_files.STATE = cloud_inventory.STATE = stack.PROJECT / "own"

def main():
    with stack_files.stack_lock("test", "`make`"):
        stack.recover("test")
        cloud_inventory.adopt_pending("test")
        stack.pulumi(sys.argv[2], "--yes", "--skip-preview", "--stack", "test")
    return 0

sys.exit(interrupts.run_command("make", main))
"""
pytestmark = pytest.mark.timeout(3600)


def start(stack: SimulatedStack, command: str) -> subprocess.Popen[str]:
    """Start a command on the stack as `make` does."""
    return subprocess.Popen(
        [sys.executable, "-c", COMMAND, str(stack.folder), command],
        cwd=ROOT,
        env=stack.environment(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(stack: SimulatedStack, command: str) -> None:
    """Run a command to its end."""
    process = start(stack, command)
    output, _ = process.communicate(timeout=COMMAND_TIMEOUT_SECONDS)
    assert process.returncode == 0, output


def interrupt(stack: SimulatedStack, command: str, after_seconds: float, times: int) -> str:
    """Run a command and return its output. Send SIGINT `times` times, `after_seconds` after Pulumi's start."""
    process = start(stack, command)
    assert process.stdout is not None
    output = ""
    for line in process.stdout:
        output += line
        if line.startswith(("Updating (", "Destroying (")):
            break
    time.sleep(after_seconds)
    for _ in range(times):
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            time.sleep(0.3)
    rest, _ = process.communicate(timeout=COMMAND_TIMEOUT_SECONDS)
    assert process.returncode in (0, 130), output + rest
    return output + rest


def test_up_and_destroy_interrupted_at_random_moments_converge(new_stack: Callable[[str], SimulatedStack]) -> None:
    seed = int(os.environ.get("TRAINYARD_SEED") or random.randrange(1 << 32))
    print(f"TRAINYARD_SEED={seed}")
    random_numbers = random.Random(seed)
    case = CASES["gke"]
    stack = new_stack(case.program)
    for count in range(TRIES):
        command, times = random_numbers.choice(("up", "up", "destroy")), random_numbers.choice((1, 1, 2))
        after_seconds = random_numbers.uniform(0, MAX_DELAY_SECONDS)
        output = interrupt(stack, command, after_seconds, times)
        print(f"{count}: {command}, {times} x SIGINT after {after_seconds:.2f} s: {output.splitlines()[-1]}")
        assert "Traceback" not in output, output
        assert list((stack.folder / "backend" / ".pulumi" / "locks").glob("**/*.json")) == [], output
        deadline = time.monotonic() + COMMAND_TIMEOUT_SECONDS
        while orphans := orphans_of(run_mark(stack.folder, "test")):
            assert time.monotonic() < deadline, orphans
            time.sleep(0.1)
        if count % 2:
            run(stack, "up")
            assert len(stack.clouds.resources) == case.resources
            run(stack, "destroy")
            assert_nothing_is_left(stack, case)
