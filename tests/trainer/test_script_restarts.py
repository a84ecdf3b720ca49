"""Restarts of a user's script, under the launchers of several hosts. The script's ranks do not communicate."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from bench.measure import free_port
from tests.trainer.processes import PROJECT, XLA_PYTHON, needs_xla
from trainer.exit_codes import DONE, PREEMPTED, RESTARTS_USED

WAIT_LIMIT_SECONDS = 240
SCRIPT = """
import os, pathlib, sys, time
folder = pathlib.Path(sys.argv[1])
rank, start = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
(folder / f"{start}.{rank}.{os.environ['MASTER_PORT']}.{os.getpid()}").touch()
while not (folder / "done").exists():
    time.sleep(0.05)
"""
SLOW_END_SCRIPT = (
    """
import pathlib, signal, sys, time
def save(*_):
    time.sleep(7)
    (folder / "saved").touch()
    sys.exit(75)
signal.signal(signal.SIGTERM, save)
"""
    + SCRIPT
)
"""Script that saves for 7 seconds when it is preempted: longer than STOP_SECONDS of trainer/restarts/agent.py."""
PYTHONS = [pytest.param(sys.executable, id="torch"), pytest.param(str(XLA_PYTHON), id="torch-of-xla", marks=needs_xla)]
"""Python with the torch of the trainer image, and with that of the XLA image. Their versions of torchrun differ."""


class Job:
    """The launchers of a job, and the files that its ranks create when they start."""

    def __init__(self, folder: Path, hosts: int, restarts: int, python: str, script: str) -> None:
        self.folder, self.num_hosts, self.restarts = folder, hosts, restarts
        self.python = python
        (folder / "script.py").write_text(script, encoding="ascii")
        self.port = free_port()
        self.launchers = [self.launch(host) for host in range(hosts)]

    def launch(self, host: int) -> subprocess.Popen[bytes]:
        options = [f"--nnodes={self.num_hosts}", f"--node-rank={host}", f"--max-restarts={self.restarts}"]
        options += ["--rdzv-backend=static", f"--rdzv-endpoint=127.0.0.1:{self.port}"]
        if self.python == sys.executable:  # torch 2.9 of the XLA image has no --shutdown-timeout
            options.append("--shutdown-timeout=20")
        with (self.folder / f"host-{host}.log").open("ab") as log:
            return subprocess.Popen(
                [self.python, "-m", "trainer.launch", *options, str(self.folder / "script.py"), str(self.folder)],
                cwd=PROJECT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(self.folder)},
                stderr=log,
                start_new_session=True,
            )

    def pids(self, start: int) -> dict[int, int]:
        """Return the process ids by rank that were recorded at this start of the script."""
        found = [path.name.split(".") for path in self.folder.glob(f"{start}.*.*.*")]
        return {int(rank): int(pid) for _, rank, _, pid in found}

    def wait_until_started(self, start: int) -> dict[int, int]:
        """Wait until all ranks of this start run. Return the process ids by rank."""
        deadline = time.monotonic() + WAIT_LIMIT_SECONDS
        while len(found := self.pids(start)) < self.num_hosts:
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.05)
        return found

    def output(self) -> str:
        return "\n".join(path.read_text(encoding="utf-8") for path in sorted(self.folder.glob("host-*.log")))

    def end(self) -> list[int]:
        """Let the ranks end, and return the launchers' exit codes."""
        (self.folder / "done").touch()
        return [launcher.wait(WAIT_LIMIT_SECONDS) for launcher in self.launchers]


@contextmanager
def job(
    folder: Path, hosts: int, restarts: int, *, python: str = sys.executable, script: str = SCRIPT
) -> Iterator[Job]:
    running = Job(folder, hosts, restarts, python, script)
    try:
        yield running
    finally:
        # A rank has its own session, so it outlives a killed launcher. The file `done` ends the rank.
        (folder / "done").touch()
        for launcher in running.launchers:
            with suppress(ProcessLookupError):
                os.killpg(launcher.pid, signal.SIGKILL)
            launcher.wait()


@pytest.mark.parametrize(("hosts", "kills"), [(2, ([1], [0])), (4, ([3], [1, 2]))], ids=["2", "4"])
def test_killed_ranks_of_a_script_restart_on_all_hosts(
    hosts: int, kills: Sequence[Sequence[int]], tmp_path: Path
) -> None:
    with job(tmp_path, hosts, restarts=len(kills)) as running:
        before = running.wait_until_started(0)
        for number, ranks in enumerate(kills, start=1):
            for rank in ranks:
                os.kill(before[rank], signal.SIGKILL)
            after = running.wait_until_started(number)
            # No rank of the previous start may still run.
            assert not [pid for pid in before.values() if Path(f"/proc/{pid}").exists()]
            before = after
        assert [launcher.poll() for launcher in running.launchers] == [None] * hosts
        assert running.end() == [DONE] * hosts, running.output()
        assert "TCPStore" not in running.output(), "torch warns: host 0 closed its store too early"
        ports = {path.name.split(".")[2] for path in tmp_path.glob("*.*.*.*")}
        assert len(ports) == 1 + len(kills), "each start must have its own store"


@needs_xla
def test_killed_rank_restarts_with_the_torch_of_the_xla_image(tmp_path: Path) -> None:
    with job(tmp_path, 2, restarts=1, python=str(XLA_PYTHON)) as running:
        os.kill(running.wait_until_started(0)[1], signal.SIGKILL)
        running.wait_until_started(1)
        assert running.end() == [DONE, DONE], running.output()


@pytest.mark.parametrize("python", PYTHONS)
def test_preempted_ranks_have_more_time_than_ranks_that_lost_another(tmp_path: Path, python: str) -> None:
    with job(tmp_path, 1, restarts=1, python=python, script=SLOW_END_SCRIPT) as running:
        running.wait_until_started(0)
        running.launchers[0].terminate()
        running.launchers[0].wait(WAIT_LIMIT_SECONDS)
        assert (tmp_path / "saved").exists(), running.output()


def test_host_lost_after_the_last_restart_ends_job(tmp_path: Path) -> None:
    with job(tmp_path, 2, restarts=1) as running:
        os.kill(running.wait_until_started(0)[1], signal.SIGKILL)
        running.wait_until_started(1)
        os.killpg(running.launchers[0].pid, signal.SIGKILL)
        assert running.launchers[1].wait(WAIT_LIMIT_SECONDS) == RESTARTS_USED, running.output()


@pytest.mark.parametrize("host", [0, 1])
def test_preempted_host_costs_no_restart(host: int, tmp_path: Path) -> None:
    with job(tmp_path, 2, restarts=1) as running:
        running.wait_until_started(0)
        running.launchers[host].terminate()
        assert running.launchers[host].wait(WAIT_LIMIT_SECONDS) == PREEMPTED
        running.launchers[host] = running.launch(host)
        # The only restart is still left.
        os.kill(running.wait_until_started(1)[1], signal.SIGKILL)
        running.wait_until_started(2)
        assert running.end() == [DONE, DONE], running.output()
