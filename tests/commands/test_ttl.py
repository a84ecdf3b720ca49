"""Stacks that are past their `ttl_hours`."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from commands import workflows
from commands.workflows import first_up, is_expired
from settings.problems import ConfigError
from stack.config import parse

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


def test_is_expired_only_after_ttl_and_never_without_one() -> None:
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


def test_stack_with_invalid_settings_is_reported_and_others_expire(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = "config: {trainyard:platform: {kind: local, nodes: 1}, trainyard:jobs: [], trainyard:ttl_hours: 8}"
    (tmp_path / "Pulumi.broken.yaml").write_text("config: {trainyard:jobs: 7}")
    (tmp_path / "Pulumi.old.yaml").write_text(settings)
    monkeypatch.setattr(workflows, "PROJECT", tmp_path)
    monkeypatch.setattr("commands.stack.pulumi", lambda *_words, **_more: json.dumps([entry("update", 12)]))
    assert workflows.main(["expired"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == ["old"]
    assert printed.err.startswith("broken: its ttl_hours is unknown")
