"""Only one command at a time changes a stack. A second one reports the first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from commands import locks
from commands.environment import StackBusy
from commands.locks import only_command

HOLD = """
import sys, time
from pathlib import Path
from commands import locks
locks.STATE = Path(sys.argv[1])
with locks.only_command("dev", "`make up`"):
    print("held", flush=True)
    time.sleep(600)
"""
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "STATE", tmp_path)


def test_second_command_learns_the_holder(tmp_path: Path) -> None:
    words = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        expected = rf"stack dev: `make up` \(pid {holder.pid}\) has been working on it since 20.*; wait until it ends"
        with pytest.raises(StackBusy, match=expected), only_command("dev", "make down"):
            pass
        with only_command("other", "make down"):
            pass
        holder.kill()
        holder.wait()
        # The text of the dead holder no longer applies.
        with only_command("dev", "make down"):
            pass


def test_holder_that_has_written_nothing_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "READ_SECONDS", 0.0)
    with only_command("dev", "make up"):
        (tmp_path / "locks" / "dev").write_text('{"command": "ma', encoding="utf-8")
        with pytest.raises(StackBusy, match="another command is working on it"), only_command("dev", "make down"):
            pass


def test_lock_names_this_process(tmp_path: Path) -> None:
    with only_command("dev", "make up"):
        assert f'"pid": {os.getpid()}' in (tmp_path / "locks" / "dev").read_text(encoding="utf-8")
    assert (tmp_path / "locks" / "dev").read_text(encoding="utf-8") == ""
