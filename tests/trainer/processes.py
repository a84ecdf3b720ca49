"""Run the trainer in real processes, alone or under a launcher per host, and read the output."""

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
"""Mark of tests with PyTorch/XLA. It is in a separate environment, with another version of torch."""
WAIT_LIMIT_SECONDS = 300
"""Longest wait in seconds for a line, or for the end of a process after the end of its output."""
Process = ForkedProcess | subprocess.Popen[str]
IMPORT_VARIABLES = {"CXX"}
"""Variables that torch reads at its import. The fork server has imported torch, so do not fork a run that sets one."""
KEY_AND_VALUE = re.compile(r"(\w+)=(\S+)")


@dataclass(frozen=True)
class RunResult:
    """Exit codes and output of a run that has ended."""

    codes: list[int]
    """Exit code of each host."""
    output: str
    """Output of all hosts."""

    def events(self, name: str) -> list[dict[str, str]]:
        """Return the printed events with this name."""
        return [dict(KEY_AND_VALUE.findall(line)) for line in self.output.splitlines() if line.startswith(f"{name} ")]


class OutputReader:
    """Reader of a process's output. It reads continuously, because a full pipe would block the process."""

    def __init__(self, process: Process) -> None:
        self.lines: list[str] = []
        self._has_ended = False
        self._changed = threading.Condition()
        self._reader = threading.Thread(target=self._read, args=(process.stdout,), daemon=True)
        self._reader.start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                with self._changed:
                    self.lines.append(line)
                    self._changed.notify_all()
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def wait_for(self, pattern: str, *, after: int = 0) -> int:
        """Wait for a line after line `after` that matches the pattern. Return its number, counted from 1."""

        def first_match() -> int:
            """Return the number of the line, or 0 if no line matches yet."""
            numbers = (number for number in range(after, len(self.lines)) if re.search(pattern, self.lines[number]))
            return next(numbers, -1) + 1

        with self._changed:
            self._changed.wait_for(lambda: first_match() or self._has_ended, timeout=WAIT_LIMIT_SECONDS)
            assert first_match(), f"no {pattern!r} in:\n{''.join(self.lines[-60:])}"
            return first_match()

    def all(self) -> str:
        """Wait until no process can write any more, and return the whole output."""
        self._reader.join()
        return "".join(self.lines)


class Launcher(OutputReader):
    """The launcher of a host, and its output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        super().__init__(process)
        self.process = process

    def end(self) -> int:
        """Wait for the end of the launcher and of its output. Return the exit code."""
        code = self.process.wait(WAIT_LIMIT_SECONDS)
        self.all()
        return code

    def signal(self, number: signal.Signals) -> None:
        """Signal every descendant. The process group lacks the ranks of a script, which have their own sessions."""
        for pid in list(descendants(self.process.pid)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """Kill the launcher and its ranks, as if the machine was lost."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGSTOP)
            self.signal(signal.SIGKILL)
            self.process.kill()
        self.end()


@contextmanager
def launched(*words: str, cwd: Path = PROJECT, **variables: str) -> Iterator[Launcher]:
    """Start a launcher in a new process group, and kill it with its ranks at the end."""
    # Let the launcher set this variable itself.
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


class ActiveRun:
    """A run in progress: one launcher per host, or one trainer process without a launcher."""

    def __init__(self, start: Callable[[int], Process], hosts: int) -> None:
        self._start = start
        self.hosts = [start(host) for host in range(hosts)]
        self._readers = [OutputReader(host) for host in self.hosts]
        self._lost_readers: list[OutputReader] = []
        self._seen = 0

    def lose_host(self, host: int) -> None:
        """Kill every process of a host."""
        os.killpg(self.hosts[host].pid, signal.SIGKILL)
        self.hosts[host].wait()

    def start_host(self, host: int) -> None:
        """Restart a host that has ended."""
        self._lost_readers.append(self._readers[host])
        self.hosts[host] = self._start(host)
        self._readers[host] = OutputReader(self.hosts[host])

    def wait_for(self, start: str) -> str:
        """Wait for the next line of host 0 that begins with `start`, and return it."""
        self._seen = self._readers[0].wait_for(f"^{re.escape(start)}", after=self._seen)
        return self.lines[-1]

    def wait_for_host(self, host: int, start: str, *, after: int = 0) -> int:
        """Wait for a host's line after line `after` that begins with `start`. Return its number, counted from 1."""
        return self._readers[host].wait_for(f"^{re.escape(start)}", after=after)

    @property
    def lines(self) -> list[str]:
        """The lines of host 0 up to the last one that `wait_for` returned."""
        return self._readers[0].lines[: self._seen]

    def rank_pid(self, rank: int) -> int:
        """Return the process id of a rank. A launcher must have started it."""
        for host in self.hosts:
            for pid in descendants(host.pid):
                with suppress(OSError):  # the process has ended
                    if Path(f"/proc/{pid}/comm").read_text(encoding="ascii") == f"rank-{rank}\n":
                        return pid
        raise AssertionError(f"no launcher has a process of rank {rank}")

    def end(self, *codes: int) -> RunResult:
        """Wait for the end of all hosts. Assert their exit codes, if given."""
        output = "".join(reader.all() for reader in (*self._lost_readers, *self._readers))
        result = RunResult([host.wait(WAIT_LIMIT_SECONDS) for host in self.hosts], output)
        assert not codes or result.codes == list(codes), result.output
        return result


@contextmanager
def started(
    *flags: str,
    recipe: str,
    hosts: int = 1,
    processes: int = 0,
    restarts: int = 0,
    data: Path,
    program: str = "trainer",
) -> Iterator[ActiveRun]:
    """Start the trainer: directly if `processes` is 0, else with a launcher and `processes` ranks per host.

    The launchers restart the ranks up to `restarts` times after a failure.
    """
    with TemporaryDirectory() as scratch:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRAINYARD_DATA": str(data), "TMPDIR": scratch}
        commands = _commands(program.split(), hosts, processes, restarts)

        def start(host: int) -> Process:
            words, variables = [*commands[host], recipe, *flags], {**environment, "TRAINYARD_NODE": f"node-{host}"}
            if not IMPORT_VARIABLES.isdisjoint(variables):
                return subprocess.Popen(
                    [sys.executable, "-u", "-m", *words],
                    cwd=PROJECT,
                    env=variables,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    start_new_session=True,
                )
            return ForkedProcess(words, str(PROJECT), variables)

        running = ActiveRun(start, hosts)
        try:
            yield running
        finally:
            for host in running.hosts:
                with suppress(ProcessLookupError):  # all processes of the host have ended
                    os.killpg(host.pid, signal.SIGKILL)
            running.end()


def run(
    *flags: str,
    recipe: str,
    hosts: int = 1,
    processes: int = 0,
    data: Path,
    program: str = "trainer",
    code: int | None = DONE,
) -> RunResult:
    """Run the trainer to its end. Assert the exit code of every host, unless `code` is None."""
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


def descendants(pid: int) -> Iterator[int]:
    """Yield the process ids of all descendants of a process. Yield nothing if the process has ended."""
    with suppress(OSError):
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split():
            yield int(child)
            yield from descendants(int(child))


def json_lines(path: Path) -> list[Any]:
    """Return the records of a file with one JSON document per line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def metrics(bucket: Path, *names: str, rank: int = 0) -> list[Any]:
    """Return the events that a rank of the job `training` wrote to the bucket. `names` selects events."""
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
