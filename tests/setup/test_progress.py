"""Run of set-up steps: skipped if done, resumed after a failure, concurrent; with durations or a progress bar."""

from __future__ import annotations

import io
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from infra.local.settings import cache_folder
from setup.progress import BAR_WIDTH, Board, LiveLine, Step, run_steps, time_left
from tests.terminal import Terminal


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def step(name: str, done: set[str], *, fails: bool = False) -> Step:
    """Return a step that adds its name to `done`, or fails."""

    def do(_say: Callable[[str], None]) -> None:
        if fails:
            raise RuntimeError("no network")
        done.add(name)

    return Step(name=name, is_done=lambda: name in done, do=do)


def test_run_steps_skips_finished_steps(capsys: pytest.CaptureFixture[str]) -> None:
    done = {"a"}
    run_steps([step("a", done), step("b", done)])
    assert done == {"a", "b"}
    assert "setup 2/2: b" in capsys.readouterr().out
    run_steps([step("a", done), step("b", done)])
    assert capsys.readouterr().out == ""


def test_run_steps_after_a_failure_resumes_at_the_failed_step(capsys: pytest.CaptureFixture[str]) -> None:
    done: set[str] = set()
    with pytest.raises(RuntimeError, match="no network"):
        run_steps([step("a", done), step("b", done, fails=True)])
    assert done == {"a"}
    run_steps([step("a", done), step("b", done)])
    assert "setup 2/2: b" in capsys.readouterr().out


def test_run_steps_shows_the_last_duration(capsys: pytest.CaptureFixture[str]) -> None:
    run_steps([step("a", set())])
    capsys.readouterr()
    run_steps([step("a", set())])
    assert "last time" in capsys.readouterr().out


def test_run_steps_ignores_a_truncated_file_of_durations(capsys: pytest.CaptureFixture[str]) -> None:
    cache_folder().mkdir(parents=True, exist_ok=True)
    (cache_folder() / "durations.json").write_text('{"a": 1', encoding="utf-8")
    run_steps([step("a", set())])
    assert "setup 1/1: a" in capsys.readouterr().out


def test_first_run_shows_the_estimated_duration(capsys: pytest.CaptureFixture[str]) -> None:
    done: set[str] = set()
    long = Step(name="a", is_done=lambda: "a" in done, do=lambda _say: done.add("a"), first_minutes=6)
    run_steps([long])
    assert "setup 1/1: a, about 6 min on two cores" in capsys.readouterr().out
    done.clear()
    run_steps([long])
    assert "last time" in capsys.readouterr().out


def test_run_steps_raises_if_a_step_has_no_result() -> None:
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


def test_failed_step_lets_the_concurrent_step_finish_and_starts_no_other_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failed, done = threading.Event(), set[str]()

    def fail(_say: Callable[[str], None]) -> None:
        failed.set()
        raise RuntimeError("no network")

    def finish(_say: Callable[[str], None]) -> None:
        assert failed.wait(30)
        done.add("b")

    concurrent = [
        Step(name="a", is_done=lambda: False, do=fail),
        Step(name="b", is_done=lambda: "b" in done, do=finish, after=[]),
    ]
    with pytest.raises(RuntimeError, match="no network"):
        run_steps([*concurrent, step("c", done)])
    assert done == {"b"}
    assert "setup 3/3" not in capsys.readouterr().out


def test_failed_step_prints_the_end_of_its_error_while_the_concurrent_step_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    started, shown, done = threading.Event(), threading.Event(), set[str]()

    class Output(io.StringIO):
        def write(self, text: str) -> int:
            if "no space left" in text:
                shown.set()
            return super().write(text)

    def fail(_say: Callable[[str], None]) -> None:
        assert started.wait(30)
        lines = [f"line {number}" for number in range(99)]
        raise RuntimeError("\n".join(["buildah failed with 125:", *lines, "no space left"]))

    def finish(_say: Callable[[str], None]) -> None:
        started.set()
        if shown.wait(10):
            done.add("b")

    output = Output()
    monkeypatch.setattr("sys.stdout", output)
    steps = [
        Step(name="a", is_done=lambda: False, do=fail),
        Step(name="b", is_done=lambda: "b" in done, do=finish, after=[]),
    ]
    with pytest.raises(RuntimeError, match="buildah failed with 125"):
        run_steps(steps)
    assert done == {"b"}, "the reason must appear before the other step ends"
    printed = output.getvalue()
    assert "a failed; waiting for b to end\n" in printed
    assert "    line 98\n    no space left\n" in printed
    assert "line 50" not in printed


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Return a terminal of 80 columns."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    return Terminal()


def planned_step(name: str, after: list[str] | None = None, minutes: float | None = None) -> Step:
    """Return a step that never runs."""
    return Step(name=name, is_done=lambda: False, do=lambda _say: None, after=after, first_minutes=minutes)


PLAN = [planned_step("a"), planned_step("b", ["a"]), planned_step("c", ["a"]), planned_step("d")]
"""Steps: `b` and `c` run at the same time."""
DURATIONS = {"a": 10.0, "b": 60.0, "c": 100.0, "d": 5.0}


@pytest.mark.parametrize(
    ("done", "running", "expected"),
    [
        ((), {}, 10 + 100 + 5),
        (("a",), {"b": 20.0, "c": 20.0}, 80 + 5),
        (("a", "b"), {"c": 40.0}, 60 + 5),
        (("a", "b", "c"), {"d": 50.0}, 5),
        (("a", "b", "c", "d"), {}, 0),
    ],
)
def test_time_left_counts_concurrent_steps_once(
    done: tuple[str, ...], running: dict[str, float], expected: float
) -> None:
    assert time_left(PLAN, DURATIONS, done, running) == pytest.approx(expected)


def test_time_left_of_a_first_run_uses_the_estimates() -> None:
    assert time_left([planned_step("a", minutes=6)], {}, (), {}) == pytest.approx(360)


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_bar_has_share_and_time_left_and_fits_the_width(width: int, terminal: Terminal) -> None:
    board = Board(PLAN, DURATIONS, terminal)
    now = time.monotonic()
    board.start("a", "setup 1/4: a")
    text = board.bar(now + 5, width)
    assert len(text) < width
    assert text.startswith("setup [")
    assert "  4 %, about 2 min left: a" in text
    board.end("a")
    board.done("a", "setup 1/4: a done in 10.0 s")
    for name in ("b", "c"):
        board.start(name, name)
    later = board.bar(now + 60, width)
    assert later.count("#") > text.count("#")
    assert later.count("#") + later.count("-") == BAR_WIDTH
    assert "setup 1/4" not in terminal.getvalue()


def test_bar_does_not_go_back_when_a_step_takes_longer(terminal: Terminal) -> None:
    board = Board([planned_step("a")], {"a": 10.0}, terminal)
    board.start("a", "a")
    now = time.monotonic()
    shares = [board.bar(now + seconds, 80).count("#") for seconds in (5, 9, 50, 500)]
    assert shares == sorted(shares)
    assert shares[-1] < BAR_WIDTH


def test_run_steps_on_a_terminal_ends_with_one_line(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", terminal)
    done: set[str] = set()
    run_steps([step("a", done), step("b", done)])
    assert terminal.getvalue().replace("\r\033[K", "").startswith("setup: 2 steps done in ")
    assert terminal.getvalue().count("\n") == 1


def test_run_steps_on_a_terminal_prints_notes_and_raises_the_failure(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(say: Callable[[str], None]) -> None:
        say("no official release: building")
        raise RuntimeError("no network")

    monkeypatch.setattr("sys.stdout", terminal)
    with pytest.raises(RuntimeError, match="no network"):
        run_steps([Step(name="a", is_done=lambda: False, do=fail)])
    assert terminal.getvalue().replace("\r\033[K", "") == "    no official release: building\n"


def test_live_line_is_cut_and_lines_are_printed_above_it(terminal: Terminal) -> None:
    line = LiveLine(terminal)
    line.set("x" * 200)
    line.print("done")
    assert terminal.getvalue() == f"\r\033[K{'x' * 78}…\r\033[Kdone\n"


def test_live_line_replaces_characters_that_the_terminal_lacks() -> None:
    written = io.BytesIO()
    output = io.TextIOWrapper(written, encoding="ascii")
    LiveLine(output).print("working…")
    assert written.getvalue() == b"working?\n"


@pytest.mark.parametrize(
    ("width", "end"),
    [(107, "CoreDNS, handwritten digits"), (106, "CoreDNS, handwritten…"), (95, "CoreDNS…"), (58, "0 %, about 2 min…")],
)
def test_bar_on_a_narrow_terminal_is_cut_at_a_space(width: int, end: str, terminal: Terminal) -> None:
    names = ("Kubernetes, etcd and CoreDNS", "handwritten digits")
    board = Board([planned_step(name, []) for name in names], dict.fromkeys(names, 120.0), terminal)
    for name in names:
        board.start(name, name)
    assert board.bar(time.monotonic(), width).endswith(end)


@pytest.mark.parametrize("term", ["dumb", "xterm"])
def test_live_line_without_a_capable_terminal_is_not_shown(term: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", term)
    out = Terminal() if term == "dumb" else io.StringIO()
    line = LiveLine(out)
    line.set("working")
    line.clear()
    line.print("done")
    assert out.getvalue() == "done\n"
