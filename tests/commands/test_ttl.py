"""Stacks that are past their `ttl_hours`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from commands import workflows
from commands.stack import PulumiFailed
from commands.workflows import JOBS_ONLY, first_up, is_expired
from settings.problems import ConfigError
from stack.config import load_file, parse

FIRST_UP = datetime(2026, 11, 20, 12, tzinfo=UTC)


def entry(kind: str, hour: int, result: str = "succeeded") -> dict[str, str]:
    """Return an entry of the history of a stack."""
    return {"kind": kind, "startTime": f"2026-11-20T{hour:02}:00:00.000Z", "result": result}


def test_first_up_is_the_first_update_after_the_last_successful_destroy() -> None:
    history = [entry("update", 15), entry("update", 12, "failed"), entry("destroy", 11), entry("update", 9)]
    assert first_up(history) == FIRST_UP
    assert first_up([entry("destroy", 16), *history]) is None
    assert first_up([entry("destroy", 16, "failed"), *history]) == FIRST_UP
    assert first_up([]) is None


def test_first_up_ignores_a_destroy_of_the_jobs_alone() -> None:
    jobs_only = {**entry("destroy", 15), "message": JOBS_ONLY}
    history = [entry("destroy", 16, "failed"), jobs_only, entry("update", 12), entry("destroy", 11)]
    assert first_up(history) == FIRST_UP
    assert first_up([{**jobs_only, "message": ""}, *history]) is None


def test_is_expired_only_after_ttl_and_never_without_ttl() -> None:
    assert not is_expired(FIRST_UP, 8, FIRST_UP + timedelta(hours=7.9))
    assert is_expired(FIRST_UP, 8, FIRST_UP + timedelta(hours=8.1))
    assert not is_expired(FIRST_UP, None, FIRST_UP + timedelta(days=300))
    assert not is_expired(None, 8, FIRST_UP)


def test_parse_ttl_hours_must_be_positive() -> None:
    values = {"platform": {"kind": "local", "nodes": 1}, "jobs": []}
    assert parse(values).ttl_hours is None
    assert parse({**values, "ttl_hours": 8}).ttl_hours == 8
    with pytest.raises(ConfigError, match="ttl_hours"):
        parse({**values, "ttl_hours": 0})


@pytest.mark.parametrize(("hour", "expired"), [(19, []), (21, ["old"])])
def test_ttl_starts_at_the_first_of_many_updates(
    project: Path, monkeypatch: pytest.MonkeyPatch, hour: int, expired: list[str]
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Clock:
            return cls(2026, 11, 20, hour, tzinfo=tz)

    monkeypatch.setattr(workflows, "datetime", Clock)
    (project / "Pulumi.old.yaml").write_text(OLD)
    assert workflows.expired_stacks() == (expired, [])


OLD = "config: {trainyard:platform: {kind: local, nodes: 1}, trainyard:jobs: [], trainyard:ttl_hours: 8}"
"""Settings of a stack that expires 8 hours after its first update."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder for settings files. The history of each stack begins with an update at FIRST_UP."""
    monkeypatch.setattr(workflows, "PROJECT", tmp_path)

    def history(*words: str, quiet: bool) -> str:
        """Return the first entries of a long history, as many as Pulumi prints for these options."""
        assert quiet
        entries = [entry("update", 23)] * 20 + [entry("update", 12)]
        size = int(words[words.index("--page-size") + 1]) if "--page-size" in words else 10
        return json.dumps(entries[:size])

    monkeypatch.setattr("commands.stack.pulumi", history)
    return tmp_path


UNSUPPORTED = "trainyard:platform: {kind: gke, project: some-project, kubernetes_version: '1.20'}, trainyard:jobs: []"


@pytest.mark.parametrize(
    "settings",
    [
        f"config: {{{UNSUPPORTED}, trainyard:ttl_hours: 8}}",
        f"config: {{{UNSUPPORTED}, ttl_hours: '8'}}",
        f"{{config: {{{UNSUPPORTED}}}, trainyard:ttl_hours: 8}}",
    ],
)
def test_stack_whose_settings_have_become_invalid_expires(
    project: Path, settings: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "Pulumi.dev.yaml").write_text(settings)
    with pytest.raises(ValueError, match=r"kubernetes_version|top-level key"):
        load_file(project / "Pulumi.dev.yaml")
    assert workflows.main(["expired"]) == 0
    assert json.loads(capsys.readouterr().out) == ["dev"]


@pytest.mark.parametrize(
    "settings",
    [
        "config: {trainyard:jobs: 7, trainyard:ttl_hours: soon}",
        "config: {trainyard:jobs: 7, trainyard:ttl_hours: 0}",
        "config: [trainyard:ttl_hours]",
        "config: {",
    ],
)
def test_stack_with_unreadable_ttl_fails_after_other_stacks_expire(
    project: Path, settings: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "Pulumi.broken.yaml").write_text(settings)
    (project / "Pulumi.old.yaml").write_text(OLD)
    assert workflows.main(["expired"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out) == ["old"]
    assert printed.err.startswith("broken: its ttl_hours cannot be checked: ")


@pytest.mark.parametrize("settings", ["config: {trainyard:jobs: 7}", "encryptionsalt: v1", ""])
def test_stack_with_invalid_settings_and_no_ttl_never_expires(
    project: Path, settings: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (project / "Pulumi.broken.yaml").write_text(settings)
    assert workflows.main(["expired"]) == 0
    assert json.loads(capsys.readouterr().out) == []


@pytest.mark.parametrize(("problem", "status"), [("no stack named 'old' found", 0), ("the backend is unreachable", 1)])
def test_expired_with_unreadable_history_fails_except_for_a_stack_that_was_never_up(
    project: Path, monkeypatch: pytest.MonkeyPatch, problem: str, status: int
) -> None:
    def fail(*_words: str, **_options: bool) -> str:
        raise PulumiFailed(problem)

    monkeypatch.setattr("commands.stack.pulumi", fail)
    (project / "Pulumi.old.yaml").write_text(OLD)
    assert workflows.main(["expired"]) == status
