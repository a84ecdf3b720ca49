"""A script without code for restarts, under the launchers of several hosts. Its ranks do not communicate."""

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

SECONDS = 240
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
"""Script that needs 7 seconds to save when it is preempted, more than STOP_SECONDS of trainer/restarts/agent.py."""
PYTHONS = [pytest.param(sys.executable, id="torch"), pytest.param(str(XLA_PYTHON), id="torch-of-xla", marks=needs_xla)]
"""Pythons with the torch of the trainer image and of the XLA image. Their versions of torchrun differ."""


class Job:
    """The launchers of a job, and the recorded starts of its ranks."""

    def __init__(self, folder: Path, hosts: int, restarts: int, python: str, script: str) -> None:
        self.folder, self.num_hosts, self.restarts = folder, hosts, restarts
        self.python = python
        (folder / "script.py").write_text(script, encoding="ascii")
        self.port = free_port()
        self.hosts = [self.launch(host) for host in range(hosts)]

    def launch(self, host: int) -> subprocess.Popen[bytes]:
        options = [f"--nnodes={self.num_hosts}", f"--node-rank={host}", f"--max-restarts={self.restarts}"]
        options += ["--rdzv-backend=static", f"--rdzv-endpoint=127.0.0.1:{self.port}"]
        if self.python == sys.executable:  # torch 2.9 of the XLA image has no --shutdown-timeout.
            options.append("--shutdown-timeout=20")
        with (self.folder / f"host-{host}.log").open("ab") as log:
            return subprocess.Popen(
                [self.python, "-m", "trainer.launch", *options, str(self.folder / "script.py"), str(self.folder)],
                cwd=PROJECT,
                env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(self.folder)},
                stderr=log,
                start_new_session=True,
            )

    def starts(self, start: int) -> dict[int, int]:
        found = [path.name.split(".") for path in self.folder.glob(f"{start}.*.*.*")]
        return {int(rank): int(process) for _, rank, _, process in found}

    def until_started(self, start: int) -> dict[int, int]:
        """Wait until all ranks of this start of the script run. Return the PID of each rank."""
        deadline = time.monotonic() + SECONDS
        while len(found := self.starts(start)) < self.num_hosts:
            assert time.monotonic() < deadline, self.output()
            time.sleep(0.05)
        return found

    def output(self) -> str:
        return "\n".join(path.read_text(encoding="utf-8") for path in sorted(self.folder.glob("host-*.log")))

    def end(self) -> list[int]:
        """Let the ranks end, and return the launchers' exit codes."""
        (self.folder / "done").touch()
        return [launcher.wait(SECONDS) for launcher in self.hosts]


@contextmanager
def job(
    folder: Path, hosts: int, restarts: int, *, python: str = sys.executable, script: str = SCRIPT
) -> Iterator[Job]:
    found = Job(folder, hosts, restarts, python, script)
    try:
        yield found
    finally:
        # A rank in a separate session outlives its launcher.
        (folder / "done").touch()
        for launcher in found.hosts:
            with suppress(ProcessLookupError):
                os.killpg(launcher.pid, signal.SIGKILL)
            launcher.wait()


@pytest.mark.parametrize(("hosts", "kills"), [(2, ([1], [0])), (4, ([3], [1, 2]))], ids=["2", "4"])
def test_killed_ranks_of_a_script_restart_on_all_hosts(
    hosts: int, kills: Sequence[Sequence[int]], tmp_path: Path
) -> None:
    with job(tmp_path, hosts, restarts=len(kills)) as found:
        before = found.until_started(0)
        for number, ranks in enumerate(kills, start=1):
            for rank in ranks:
                os.kill(before[rank], signal.SIGKILL)
            after = found.until_started(number)
            # No rank of an earlier start still runs.
            assert not [process for process in before.values() if Path(f"/proc/{process}").exists()]
            before = after
        assert [launcher.poll() for launcher in found.hosts] == [None] * hosts
        assert found.end() == [DONE] * hosts, found.output()
        assert "TCPStore" not in found.output(), "torch warns when host 0 closes its store while others query it"
        ports = {path.name.split(".")[2] for path in tmp_path.glob("*.*.*.*")}
        assert len(ports) == 1 + len(kills), "each start must have its own store"


@needs_xla
def test_killed_rank_restarts_with_the_torch_of_the_xla_image(tmp_path: Path) -> None:
    with job(tmp_path, 2, restarts=1, python=str(XLA_PYTHON)) as found:
        os.kill(found.until_started(0)[1], signal.SIGKILL)
        found.until_started(1)
        assert found.end() == [DONE, DONE], found.output()


@pytest.mark.parametrize("python", PYTHONS)
def test_preempted_ranks_have_more_time_than_ranks_that_lost_another(tmp_path: Path, python: str) -> None:
    with job(tmp_path, 1, restarts=1, python=python, script=SLOW_END_SCRIPT) as found:
        found.until_started(0)
        found.hosts[0].terminate()
        found.hosts[0].wait(SECONDS)
        assert (tmp_path / "saved").exists(), found.output()


def test_lost_host_without_remaining_restarts_ends_job(tmp_path: Path) -> None:
    with job(tmp_path, 2, restarts=1) as found:
        os.kill(found.until_started(0)[1], signal.SIGKILL)
        found.until_started(1)
        os.killpg(found.hosts[0].pid, signal.SIGKILL)
        assert found.hosts[1].wait(SECONDS) == RESTARTS_USED, found.output()


@pytest.mark.parametrize("host", [0, 1])
def test_preempted_host_costs_no_restart(host: int, tmp_path: Path) -> None:
    with job(tmp_path, 2, restarts=1) as found:
        found.until_started(0)
        found.hosts[host].terminate()
        assert found.hosts[host].wait(SECONDS) == PREEMPTED
        found.hosts[host] = found.launch(host)
        # The only restart is still left.
        os.kill(found.until_started(1)[1], signal.SIGKILL)
        found.until_started(2)
        assert found.end() == [DONE, DONE], found.output()
