"""Fixture of the benchmark tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench import trainer_rank
from trainer.watchdog import Watchdog


@pytest.fixture
def watchdogs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Watchdog]]:
    """Yield a list of the watchdogs that trainings start. Stop them afterwards, so that they report no hang."""
    started: list[Watchdog] = []

    class RecordedWatchdog(Watchdog):
        def __enter__(self) -> Watchdog:
            started.append(self)
            return super().__enter__()

    monkeypatch.setattr(trainer_rank, "Watchdog", RecordedWatchdog)
    yield started
    for each in started:
        each.__exit__()
