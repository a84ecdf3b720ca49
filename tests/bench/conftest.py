"""Fixtures of the tests of the bench."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench import trainer_rank
from trainer.watchdog import Watchdog


@pytest.fixture
def watchdogs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Watchdog]]:
    """Yield the watchdogs that trainings start. Stop the watchdogs afterwards, or they would report a hang."""
    started: list[Watchdog] = []

    class Recorded(Watchdog):
        def __enter__(self) -> Watchdog:
            started.append(self)
            return super().__enter__()

    monkeypatch.setattr(trainer_rank, "Watchdog", Recorded)
    yield started
    for each in started:
        each.__exit__()
