"""Set-up steps: they run if not done, resume after an interruption, and show the duration of the last time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from setup.progress import Step, run_steps


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def step(name: str, done: set[str], *, fails: bool = False) -> Step:
    """Return a step whose result is its name in `done`."""

    def do(_say: Callable[[str], None]) -> None:
        if fails:
            raise RuntimeError("no network")
        done.add(name)

    return Step(name=name, is_done=lambda: name in done, do=do)


def test_run_steps_skips_finished_steps(capsys: pytest.CaptureFixture[str]) -> None:
    done = {"a"}
    run_steps([step("a", done), step("b", done)])
    assert done == {"a", "b"}
    assert "setup 1/1: b" in capsys.readouterr().out
    run_steps([step("a", done), step("b", done)])
    assert capsys.readouterr().out == ""


def test_run_steps_continues_after_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    done: set[str] = set()
    with pytest.raises(RuntimeError, match="no network"):
        run_steps([step("a", done), step("b", done, fails=True)])
    assert done == {"a"}
    run_steps([step("a", done), step("b", done)])
    assert "setup 1/1: b" in capsys.readouterr().out


def test_run_steps_shows_the_last_duration(capsys: pytest.CaptureFixture[str]) -> None:
    run_steps([step("a", set())])
    capsys.readouterr()
    run_steps([step("a", set())])
    assert "last time" in capsys.readouterr().out


def test_first_run_shows_the_estimated_duration(capsys: pytest.CaptureFixture[str]) -> None:
    done: set[str] = set()
    long = Step(name="a", is_done=lambda: "a" in done, do=lambda _say: done.add("a"), first_minutes=6)
    run_steps([long])
    assert "setup 1/1: a, about 6 min on two cores" in capsys.readouterr().out
    done.clear()
    run_steps([long])
    assert "last time" in capsys.readouterr().out


def test_step_without_its_result_raises() -> None:
    with pytest.raises(RuntimeError, match="bug in setup"):
        run_steps([Step(name="a", is_done=lambda: False, do=lambda _say: None)])


def test_independent_step_runs_concurrently() -> None:
    together, done = threading.Barrier(2, timeout=30), set[str]()

    def concurrent(name: str, after: list[str] | None) -> Step:
        def do(_say: Callable[[str], None]) -> None:
            assert "first" in done
            together.wait()
            done.add(name)

        return Step(name=name, is_done=lambda: name in done, do=do, after=after)

    last = step("last", done)
    run_steps([step("first", done), concurrent("a", None), concurrent("b", ["first"]), last])
    assert done == {"first", "a", "b", "last"}


def test_failed_step_lets_the_concurrent_one_finish_and_starts_no_other(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed, done = threading.Event(), set[str]()

    def fail(_say: Callable[[str], None]) -> None:
        failed.set()
        raise RuntimeError("no network")

    def go_on(_say: Callable[[str], None]) -> None:
        assert failed.wait(30)
        done.add("b")

    begun = [
        Step(name="a", is_done=lambda: False, do=fail),
        Step(name="b", is_done=lambda: "b" in done, do=go_on, after=[]),
    ]
    with pytest.raises(RuntimeError, match="no network"):
        run_steps([*begun, step("c", done)])
    assert done == {"b"}
    assert "setup 3/3" not in capsys.readouterr().out
