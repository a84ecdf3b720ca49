"""`make test`: what an interrupted run leaves, and the warning about a small disk."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from commands import test as command
from commands.environment import PROJECT
from infra.local import lifecycle
from infra.local.settings import ClusterSettings

WAITING_TEST = """
import pathlib, time
def test_waits(tmp_path):
    print(tmp_path, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize(("body", "is_interrupted"), [("pass", False), ("raise KeyboardInterrupt", True)])
def test_run_stops_shared_clusters_only_if_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, is_interrupted: bool
) -> None:
    (tmp_path / "test_one.py").write_text(f"def test_one():\n    {body}\n", encoding="utf-8")
    shared, other = (ClusterSettings(owner=owner) for owner in (f"{PROJECT}/tests/local", str(PROJECT)))
    monkeypatch.setattr(lifecycle, "saved_clusters", lambda: [shared, other])
    stopped: list[ClusterSettings] = []
    monkeypatch.setattr(lifecycle, "stop", stopped.append)
    status = command.run_pytest([str(tmp_path / "test_one.py")], os.environ)
    assert status == (pytest.ExitCode.INTERRUPTED if is_interrupted else pytest.ExitCode.OK)
    assert stopped == [shared] * is_interrupted


def test_interrupted_run_ends_with_summary_and_removes_its_files(tmp_path: Path) -> None:
    (tmp_path / "test_waiting.py").write_text(WAITING_TEST, encoding="utf-8")
    words = [sys.executable, "-m", "commands.test", "-s", str(tmp_path / "test_waiting.py")]
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}  # without the clusters of other tests
    with subprocess.Popen(
        words, cwd=PROJECT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        assert running.stdout is not None
        folder = next(line for line in running.stdout if "test_waits" in line).split()[-1]
        assert Path(folder).is_dir()
        os.killpg(running.pid, signal.SIGINT)
        text = running.stdout.read()
    assert "no tests ran" in text
    assert running.returncode == pytest.ExitCode.INTERRUPTED
    assert not Path(folder).parent.exists()


def test_long_tests_warn_if_the_disk_is_too_small() -> None:
    assert command.disk_warning(36_000_000_000, 40_000_000_000) == ""
    warning = command.disk_warning(36_000_000_000, 30_000_000_000)
    assert warning == "WARNING: the long tests need 36 GB of disk, 30 GB are free: some will fail\n"
