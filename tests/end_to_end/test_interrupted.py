"""`make up` and `make down` leave no lock and no process after an interruption at a random moment, and `up` works.

Only a killed Pulumi may leave its lock until the next command. The test interrupts five commands, or fifty with
TRAINYARD_TESTS=soak. It prints TRAINYARD_SEED. Set this variable to repeat the random choices.
"""

from __future__ import annotations

import contextlib
import os
import pty
import random
import select
import signal
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from commands.stack_files import RUN_VARIABLE
from infra.local.leftovers import environment_value
from tests.conftest import SOAK
from tests.end_to_end.conftest import Checkout, is_pulumi_in, processes

LIMIT_SECONDS = 300.0
"""Longest time of a command, in seconds."""
WAYS = ("key", "command", "make", "twice", "kill")
"""Ways to interrupt: Ctrl-C in the terminal, SIGINT to the command, SIGTERM to make, two Ctrl-C, SIGKILL to Pulumi."""


@dataclass(frozen=True, kw_only=True)
class InterruptedResult:
    """Result of a make target that was interrupted."""

    way: str
    moment: str
    """Moment of the signal, for messages."""
    status: int
    """Exit status, as in subprocess."""
    output: str
    took: float
    """Seconds from the signal to the end."""

    def __str__(self) -> str:
        return f"{self.way} {self.moment}, ended {self.took:.1f} s later with {self.status}:\n{self.output}"


def interrupt(checkout: Checkout, target: str, way: str, delay: float, text: str = "") -> InterruptedResult:
    """Run `make TARGET`, interrupt it `delay` seconds after the output `text`, and wait for its end.

    Without `text`, the delay counts from the start of the target.
    """
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(checkout.folder)
        os.execvpe("make", ["make", *target.split()], checkout.environment() | {"TERM": "dumb"})
    output, started, sent_at = b"", time.monotonic(), 0.0
    counted_from = 0.0 if text else started
    has_second_signal = way == "twice"
    while True:
        now = time.monotonic()
        assert now - started < LIMIT_SECONDS, output.decode(errors="replace")
        if not counted_from and text.encode() in output:
            counted_from = now
        if not sent_at and counted_from and now - counted_from >= delay:
            _send(checkout, target, pid, terminal, way)
            sent_at = now
        if has_second_signal and sent_at and now - sent_at >= 1.0:
            has_second_signal = False
            _send(checkout, target, pid, terminal, way)
        if select.select([terminal], [], [], 0.02)[0]:
            try:
                output += os.read(terminal, 65536)
            except OSError:
                break  # the last process of the terminal has ended
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    return InterruptedResult(
        way=way,
        moment=f"{delay:.2f} s after {text or 'its start'}" if sent_at else "never",
        status=os.waitstatus_to_exitcode(status),
        output=output.decode(errors="replace"),
        took=time.monotonic() - sent_at if sent_at else 0.0,
    )


def _send(checkout: Checkout, target: str, make: int, terminal: int, way: str) -> None:
    with contextlib.suppress(OSError):
        if way in ("key", "twice"):
            os.write(terminal, b"\x03")
        elif way == "make":
            os.kill(make, signal.SIGTERM)
        for pid in processes() if way in ("command", "kill") else ():
            if way == "kill" and is_pulumi_in(pid, checkout.folder):
                os.kill(pid, signal.SIGKILL)
            if way == "command" and _is_command(pid, checkout.folder, target.split()[0].encode()):
                os.kill(pid, signal.SIGINT)


def _is_command(pid: int, folder: Path, name: bytes) -> bool:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return words[1:4] == [b"-m", b"commands.cli", name] and Path(f"/proc/{pid}/cwd").readlink() == folder
    except OSError:
        return False


def leftovers_of_runs(checkout: Checkout) -> list[str]:
    """Return what runs of Pulumi have left: locks, and processes that do not belong to the cluster."""
    found = [str(path) for path in (checkout.folder / ".trainyard").glob("pulumi/.pulumi/locks/**/*.json")]
    mark = f"{checkout.folder}:"
    for pid in processes():
        if (environment_value(pid, RUN_VARIABLE) or "").startswith(mark) and not environment_value(
            pid, "TRAINYARD_CLUSTER"
        ):
            found.append(f"process {pid}: {Path(f'/proc/{pid}/cmdline').read_bytes()!r}")
    return found


TRIES = 50 if SOAK else 5
START_TEXTS = {"up": "stack local: updating", "down": "stack local: destroying"}
"""Text that a command prints before Pulumi starts."""
MAX_DELAY_SECONDS = {"": 5.0, START_TEXTS["up"]: 15.0, START_TEXTS["down"]: 4.0}
"""Output from which the delay counts, or empty for the command's start -> longest delay in seconds."""
COMPLETE_CYCLE_EVERY = 5
"""Number of interrupted commands after which a complete `up` and `down` must work."""
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]


@pytest.fixture
def small_checkout(checkout: Checkout) -> Checkout:
    """Return the checkout with one node and a suspended job, for which `make up` does not wait."""
    content = yaml.safe_load(checkout.stack_file.read_text(encoding="utf-8"))
    content["config"]["trainyard:platform"].update(nodes=1)
    content["config"]["trainyard:jobs"][0].update(hosts=1, suspend=True)
    checkout.stack_file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return replace(checkout, is_verbose=False)


def run(checkout: Checkout, target: str) -> str:
    """Run a make target to its end. Return its output."""
    output = checkout.run("make", target)
    assert "Traceback" not in output, output
    return output


def test_interrupted_command_leaves_nothing_and_can_be_repeated(small_checkout: Checkout) -> None:
    seed = int(os.environ.get("TRAINYARD_SEED") or random.randrange(1 << 32))
    print(f"TRAINYARD_SEED={seed}")
    rng = random.Random(seed)
    run(small_checkout, "up")
    run(small_checkout, "down")
    for count in range(TRIES):
        target, way = rng.choice(("up", "up", "down")), WAYS[count % len(WAYS)]
        text = rng.choice(("", START_TEXTS[target], START_TEXTS[target]))
        done = interrupt(small_checkout, target, way, rng.uniform(0, MAX_DELAY_SECONDS[text]), text)
        print(f"{count}: make {target}, {way} {done.moment}: status {done.status}, {done.took:.1f} s later")
        assert "Traceback" not in done.output, done
        if way != "kill":
            assert leftovers_of_runs(small_checkout) == [], done
        if count % COMPLETE_CYCLE_EVERY == COMPLETE_CYCLE_EVERY - 1:
            run(small_checkout, "up")
            assert leftovers_of_runs(small_checkout) == []
            assert "nothing is left" in run(small_checkout, "down")
            assert leftovers_of_runs(small_checkout) == []
