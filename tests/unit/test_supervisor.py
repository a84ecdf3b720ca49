"""Supervisor of a local cluster: full disks, and programs that fail to start."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from infra.project import CHECKOUT
from tests.local.conftest import wait_for

SUPERVISOR = """
import sys
from pathlib import Path

from infra.local import supervisor

supervisor.MAX_RESTART_SECONDS = 0.2
folder = Path(sys.argv[1])


def attach(_pid: int) -> None:
    if not (folder / "bridge").exists():
        raise RuntimeError("no bridge")


supervisor.keep_running(
    [
        supervisor.Program(name="program", argv=[str(folder / "program"), str(folder / "runs")], log=folder / "log"),
        supervisor.Program(name="node", argv=["sleep", "600"], log=folder / "log", on_start=attach),
    ]
)
"""
"""Program that supervises `program`, and `sleep` as a node that needs a bridge. Its argument is the folder of both."""
PROGRAM = "#!/bin/sh\necho >> $1\n"
"""Program that adds a line to a file and ends."""


@contextmanager
def running(folder: Path, log: IO[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run the supervisor with its log in an open file. Kill the supervisor and its programs at the end."""
    command = ["unshare", "--fork", "--pid", "--kill-child", sys.executable, "-c", SUPERVISOR, str(folder)]
    with subprocess.Popen(command, cwd=CHECKOUT, stderr=log) as process:
        try:
            yield process
        finally:
            process.kill()


def install(folder: Path) -> None:
    """Write the program. The rename avoids a start of an incomplete file."""
    draft = folder / "draft"
    draft.write_text(PROGRAM, encoding="ascii")
    draft.chmod(0o755)
    draft.rename(folder / "program")


def runs(folder: Path) -> int:
    """Return the number of the program's runs."""
    file = folder / "runs"
    return len(file.read_text(encoding="ascii")) if file.exists() else 0


def test_keep_running_without_space_for_its_log_restarts_programs(tmp_path: Path) -> None:
    install(tmp_path)
    (tmp_path / "bridge").touch()
    with Path("/dev/full").open("w", encoding="ascii") as log, running(tmp_path, log) as process:
        wait_for("the program runs twice", lambda: runs(tmp_path) > 1 or process.poll() is not None)
        assert process.poll() is None


def test_keep_running_after_failed_starts_tries_again(tmp_path: Path) -> None:
    path = tmp_path / "supervisor.log"
    with path.open("w", encoding="ascii") as log, running(tmp_path, log) as process:

        def has_lines(*lines: str) -> bool:
            text = path.read_text(encoding="ascii")
            return process.poll() is not None or all(each in text for each in lines)

        wait_for("both starts fail", lambda: has_lines("program failed to start: ", "node failed to start: no bridge"))
        install(tmp_path)
        (tmp_path / "bridge").touch()
        wait_for("both start", lambda: has_lines("program started", "node started"))
        assert process.poll() is None
        assert "node ended with -9" in path.read_text(encoding="ascii")
