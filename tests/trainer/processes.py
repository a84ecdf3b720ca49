"""Run the trainer as real processes, with one torchrun per host, and read their output."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import pytest

from bench.measure import free_port
from tests.trainer.fork_server import ForkedProcess
from trainer.exit_codes import DONE

PROJECT = Path(__file__).resolve().parents[2]
XLA_PYTHON = PROJECT / ".venv-xla" / "bin" / "python"
needs_xla = pytest.mark.skipif(not XLA_PYTHON.exists(), reason="NOT RUN: no .venv-xla; `make xla` creates it (6 GB)")
"""Mark of tests with PyTorch/XLA, whose torch has another version."""
SECONDS = 300
"""Maximum seconds to wait for a line, or for the end of a host whose output has ended."""
Process = ForkedProcess | subprocess.Popen[str]
IMPORT_VARIABLES = {"CXX"}
"""Variables that torch reads when it is imported, which the fork server has done already."""
PAIR = re.compile(r"(\w+)=(\S+)")


@dataclass(frozen=True)
class Ended:
    """The result of a run."""

    codes: list[int]
    """Exit code of each host."""
    output: str
    """Output of all hosts."""

    def events(self, name: str) -> list[dict[str, str]]:
        """Return the printed events of one kind."""
        return [dict(PAIR.findall(line)) for line in self.output.splitlines() if line.startswith(f"{name} ")]


class Printed:
    """The output of a process, read continuously, because a full pipe would block the process."""

    def __init__(self, process: Process) -> None:
        self.lines: list[str] = []
        self._over = False
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, printed: IO[str]) -> None:
        with printed:
            for line in printed:
                with self._more:
                    self.lines.append(line)
                    self._more.notify_all()
        with self._more:
            self._over = True
            self._more.notify_all()

    def wait_for(self, pattern: str, *, after: int = 0) -> int:
        """Return the number of lines up to the first match after line `after`."""

        def found() -> int:
            numbers = (number for number in range(after, len(self.lines)) if re.search(pattern, self.lines[number]))
            return next(numbers, -1) + 1

        with self._more:
            self._more.wait_for(lambda: found() or self._over, timeout=SECONDS)
            assert found(), f"no {pattern!r} in:\n{''.join(self.lines[-60:])}"
            return found()

    def all(self) -> str:
        """Return the whole output once no process can write to it."""
        self._reader.join()
        return "".join(self.lines)


class Launcher(Printed):
    """A launcher of a host and its output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__(process)
        self.process = process

    def end(self) -> int:
        """Return the exit code, once all output is read."""
        code = self.process.wait(SECONDS)
        self.all()
        return code

    def signal(self, number: signal.Signals) -> None:
        """Signal the ranks, which torchrun starts in separate sessions."""
        for process in list(descendants(self.process.pid)):
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def kill(self) -> None:
        """Kill the launcher and its ranks, like a lost machine."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)
            self.signal(signal.SIGKILL)
            self.process.kill()
        self.end()


@contextmanager
def launched(*words: str, cwd: Path = PROJECT, **variables: str) -> Iterator[Launcher]:
    """Start a launcher in a new process group, and kill it with its ranks at the end."""
    # The launcher sets this variable itself.
    inherited = {name: value for name, value in os.environ.items() if name != "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"}
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "trainer.launch", *words],
        cwd=cwd,
        env=inherited | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(PROJECT)} | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    launcher = Launcher(process)
    try:
        yield launcher
    finally:
        launcher.kill()


class Running:
    """A run in progress: one process without a launcher, or one launcher per host."""

    def __init__(self, start: Callable[[int], Process], hosts: int) -> None:
        self._start = start
        self.hosts = [start(host) for host in range(hosts)]
        self._printed = [Printed(host) for host in self.hosts]
        self._lost: list[Printed] = []
        self._seen = 0

    def lose_host(self, host: int) -> None:
        """Kill every process of a host."""
        os.killpg(self.hosts[host].pid, signal.SIGKILL)
        self.hosts[host].wait()

    def start_host(self, host: int) -> None:
        """Restart a host that has ended."""
        self._lost.append(self._printed[host])
        self.hosts[host] = self._start(host)
        self._printed[host] = Printed(self.hosts[host])

    def wait_for(self, start: str) -> str:
        """Return the first host's next line with this beginning."""
        self._seen = self._printed[0].wait_for(f"^{re.escape(start)}", after=self._seen)
        return self.lines[-1]

    def wait_for_host(self, host: int, start: str, *, after: int = 0) -> int:
        """Wait for a host's first line with this beginning after line `after`. Return the number of lines up to it."""
        return self._printed[host].wait_for(f"^{re.escape(start)}", after=after)

    @property
    def lines(self) -> list[str]:
        """Return the first host's lines up to the last awaited one."""
        return self._printed[0].lines[: self._seen]

    def rank_process(self, rank: int) -> int:
        """Return the process id of a rank that a launcher started."""
        for host in self.hosts:
            for process in descendants(host.pid):
                with suppress(OSError):  # the process has ended meanwhile
                    if Path(f"/proc/{process}/comm").read_text(encoding="ascii") == f"rank-{rank}\n":
                        return process
        raise AssertionError(f"no process of rank {rank}")

    def end(self, *codes: int) -> Ended:
        """Wait for all hosts. Assert their exit codes if given."""
        output = "".join(printed.all() for printed in (*self._lost, *self._printed))
        ended = Ended([host.wait(SECONDS) for host in self.hosts], output)
        assert not codes or ended.codes == list(codes), ended.output
        return ended


@contextmanager
def started(
    *flags: str,
    recipe: str,
    hosts: int = 1,
    processes: int = 0,
    restarts: int = 0,
    data: Path,
    program: str = "trainer",
) -> Iterator[Running]:
    """Start the trainer: directly if `processes` is 0, else with a launcher and `processes` ranks per host.

    A launcher restarts its processes up to `restarts` times after a failure.
    """
    with TemporaryDirectory() as scratch:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRAINYARD_DATA": str(data), "TMPDIR": scratch}
        commands = _commands(program.split(), hosts, processes, restarts)

        def start(host: int) -> Process:
            program, variables = [*commands[host], recipe, *flags], {**environment, "TRAINYARD_NODE": f"node-{host}"}
            if not IMPORT_VARIABLES.isdisjoint(variables):
                return subprocess.Popen(
                    [sys.executable, "-u", "-m", *program],
                    cwd=PROJECT,
                    env=variables,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    start_new_session=True,
                )
            return ForkedProcess(program, str(PROJECT), variables)

        running = Running(start, hosts)
        try:
            yield running
        finally:
            for launcher in running.hosts:
                with suppress(ProcessLookupError):  # all have ended
                    os.killpg(launcher.pid, signal.SIGKILL)
            running.end()


def run(
    *flags: str,
    recipe: str,
    hosts: int = 1,
    processes: int = 0,
    data: Path,
    program: str = "trainer",
    code: int | None = DONE,
) -> Ended:
    """Start the trainer, wait for its end and assert the exit code of all hosts, unless it is None."""
    with started(*flags, recipe=recipe, hosts=hosts, processes=processes, data=data, program=program) as running:
        return running.end(*[] if code is None else [code] * hosts)


def run_python(*words: str | bytes, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the project and return its exit code and output."""
    return subprocess.run(
        [sys.executable, *words],
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT), "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def descendants(process: int) -> Iterator[int]:
    """Return all descendants of a process, or nothing if it has ended."""
    with suppress(OSError):
        for child in Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split():
            yield int(child)
            yield from descendants(int(child))


def json_lines(path: Path) -> list[Any]:
    """Return the records in a file, one per line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def metrics(bucket: Path, *names: str, rank: int = 0) -> list[Any]:
    """Return the events of a rank of the job `training` in its bucket: all of them, or those with these names."""
    events = json_lines(bucket / "training" / "metrics" / f"rank-{rank}.jsonl")
    return [event for event in events if not names or event["event"] in names]


def _commands(program: list[str], hosts: int, processes: int, restarts: int) -> Sequence[list[str]]:
    if not processes:
        return [program]
    port = free_port()
    common = [f"--nnodes={hosts}", f"--nproc-per-node={processes}", "--rdzv-backend=static", "--shutdown-timeout=15"]
    common.append(f"--max-restarts={restarts}")
    return [
        ["trainer.launch", *common, f"--rdzv-endpoint=127.0.0.1:{port}", f"--node-rank={host}", "-m", *program]
        for host in range(hosts)
    ]
