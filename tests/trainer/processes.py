"""Runs the trainer as real processes, one torchrun a host, and reads what they print."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

PROJECT = Path(__file__).resolve().parents[2]
SECONDS = 300
PAIR = re.compile(r"(\w+)=(\S+)")


@dataclass(frozen=True)
class Ended:
    """What a run left behind."""

    codes: list[int]
    """Exit code of each host."""
    output: str
    """Everything the hosts printed."""

    def events(self, name: str) -> list[dict[str, str]]:
        """The printed lines of one kind."""
        return [dict(PAIR.findall(line)) for line in self.output.splitlines() if line.startswith(f"{name} ")]


@dataclass
class Running:
    """A run in progress: one process where it has no launcher, else one launcher a host."""

    hosts: list[subprocess.Popen[str]]
    lines: list[str] = field(default_factory=list)

    def wait_for(self, start: str) -> str:
        """Read the first host's output up to a line that starts so."""
        assert self.hosts[0].stdout
        for line in self.hosts[0].stdout:
            self.lines.append(line)
            if line.startswith(start):
                return line
        raise AssertionError(f"no line starts with {start!r}:\n{''.join(self.lines)}")

    def rank_process(self, rank: int) -> int:
        """Process id of a rank below a launcher."""
        for host in self.hosts:
            for process in descendants(host.pid):
                if Path(f"/proc/{process}/comm").read_text(encoding="ascii") == f"rank-{rank}\n":
                    return process
        raise AssertionError(f"no process of rank {rank}")

    def end(self) -> Ended:
        """Wait for all hosts."""
        with ThreadPoolExecutor() as threads:
            # Not communicate(): it would miss what wait_for has taken from the pipe and not returned.
            rest = list(threads.map(_rest, self.hosts))
        return Ended([host.wait(SECONDS) for host in self.hosts], "".join(self.lines + rest))


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
    """Start the trainer: plainly where `processes` is 0, else `processes` a host below a launcher each.

    A launcher starts its processes again, `restarts` times, when one of them fails.
    """
    with TemporaryDirectory() as scratch:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TRAINYARD_DATA": str(data), "TMPDIR": scratch}
        launchers = [
            subprocess.Popen(
                [sys.executable, "-u", "-m", *words, recipe, *flags],
                cwd=PROJECT,
                env={**environment, "TRAINYARD_NODE": f"node-{host}"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
            for host, words in enumerate(_commands(program.split(), hosts, processes, restarts))
        ]
        try:
            yield Running(launchers)
        finally:
            for launcher in launchers:
                if launcher.poll() is None:
                    os.killpg(launcher.pid, signal.SIGKILL)
                    launcher.wait()
                if launcher.stdout:
                    launcher.stdout.close()


def run(*flags: str, recipe: str, hosts: int = 1, processes: int = 0, data: Path, program: str = "trainer") -> Ended:
    """Start the trainer and wait for its end."""
    with started(*flags, recipe=recipe, hosts=hosts, processes=processes, data=data, program=program) as running:
        return running.end()


def _rest(host: subprocess.Popen[str]) -> str:
    assert host.stdout
    return host.stdout.read()


def descendants(process: int) -> Iterator[int]:
    """All processes below one."""
    for child in Path(f"/proc/{process}/task/{process}/children").read_text(encoding="ascii").split():
        yield int(child)
        yield from descendants(int(child))


def json_lines(path: Path) -> list[Any]:
    """The records of a file, one a line."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _commands(program: list[str], hosts: int, processes: int, restarts: int) -> Sequence[list[str]]:
    if not processes:
        return [program]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = [f"--nnodes={hosts}", f"--nproc-per-node={processes}", "--rdzv-backend=static", "--shutdown-timeout=3"]
    common.append(f"--max-restarts={restarts}")
    return [
        ["trainer.launch", *common, f"--rdzv-endpoint=127.0.0.1:{port}", f"--node-rank={host}", "-m", *program]
        for host in range(hosts)
    ]
