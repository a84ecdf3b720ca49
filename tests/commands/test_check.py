"""Tools that `make check` runs, and the problems that it finds in pip-audit's output."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from commands import check
from commands.check import audit_results
from commands.environment import PROJECT


def test_check_runs_the_tools_that_make_help_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (PROJECT / "Makefile").read_text(encoding="utf-8").splitlines()
    (listed,) = [line.partition("## run ")[2] for line in lines if line.startswith("check: ")]
    words = [Path(word).name for _, command in check.checks() for word in command]

    def run(command: Sequence[str], **_named: Any) -> subprocess.CompletedProcess[str]:
        words.append(Path(command[0]).name)
        return subprocess.CompletedProcess(command, 0, stdout='{"dependencies": []}', stderr="")

    monkeypatch.setattr(check, "tracked", lambda *_patterns: ["requirements.txt"])
    monkeypatch.setattr(subprocess, "run", run)
    assert check.audit()
    programs = {"import contracts": "lint-imports", "mypy --strict": "mypy", "detect-secrets": "detect-secrets-hook"}
    assert [name for name in listed.split(", ") if programs.get(name, name) not in words] == []


def test_audit_results_count_skipped_and_audited_packages_separately() -> None:
    vulnerability = {"id": "PYSEC-1", "fix_versions": ["2.0"]}
    answer = {
        "dependencies": [
            {"name": "a", "version": "1.0", "vulns": [vulnerability]},
            {"name": "b", "version": "1.0", "vulns": []},
            {"name": "c", "skip_reason": "not found"},
        ]
    }
    assert audit_results(answer) == (["a 1.0 has PYSEC-1; fixed in 2.0"], 1, 2)
