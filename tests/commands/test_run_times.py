"""Time of a run by cause: waiting, set-up, training, evaluating, saving, lost work, and stops between runs."""

from __future__ import annotations

from typing import Any

import pytest

from commands import run_times
from commands.run_times import RunTimes, Span, goodput, times_of, without_short


def event(name: str, time: float, **values: Any) -> dict[str, Any]:
    """Return an event of a job's metrics."""
    return {"event": name, "time": time, **values}


def steps(first: int, last: int, time: float, seconds: float = 1.0) -> list[dict[str, Any]]:
    """Return a `train` event for each step from `first` to `last`. The first one is at `time`."""
    return [event("train", time + (step - first) * seconds, global_step=step) for step in range(first, last + 1)]


def test_run_without_interruption_waits_sets_up_and_trains() -> None:
    found = times_of([event("start", 130), *steps(1, 11, 140), event("done", 150)], job_started=100)
    assert found.seconds_by_cause() == {"waiting": 30, "set-up": 10, "training": 10}
    assert goodput(found.seconds_by_cause()) == 20


def test_run_in_progress_counts_the_time_since_its_last_event() -> None:
    found = times_of([event("start", 0), *steps(1, 11, 10)])
    assert found.seconds_by_cause(until=50)["training"] == 40
    assert found.seconds_by_cause()["training"] == 10
    assert RunTimes(100).seconds_by_cause(until=160) == {"waiting": 60}
    assert times_of([event("start", 0)]).seconds_by_cause(until=7) == {"set-up": 7}


def test_restart_loses_steps_after_the_checkpoint_and_the_time_until_the_next_start() -> None:
    first = [event("start", 0), *steps(1, 21, 10), event("checkpoint", 25, step=11, seconds=0.5)]
    first.sort(key=lambda each: float(each["time"]))
    again = [event("start", 50), event("resume", 55, step=11), *steps(12, 22, 60)]
    found = times_of([*first, *again])
    # Steps 12 to 21 took 10 s, and the processes started 20 s later.
    assert found.seconds_by_cause() == {"set-up": 20, "training": 20, "lost": 30}
    assert [(each.cause, each.begun, each.ended) for each in found.spans()] == [
        ("set-up", 0, 10),
        ("training", 10, 20),
        ("lost", 20, 30),
        ("lost", 30, 50),
        ("set-up", 50, 60),
        ("training", 60, 70),
    ]


def test_stop_after_a_checkpoint_of_the_last_step_loses_nothing() -> None:
    first = [event("start", 0), *steps(1, 21, 10), event("checkpoint", 31, step=21, seconds=1.0)]
    found = times_of([*first, event("start", 100), event("resume", 101, step=21), *steps(22, 32, 110)])
    assert found.seconds_by_cause() == {"waiting": 69, "set-up": 20, "training": 31}


def test_time_from_a_restart_of_the_ranks_to_the_next_start_is_lost() -> None:
    first = [event("start", 0), *steps(1, 21, 10), event("restart", 35, number=1), event("restart", 36, number=2)]
    found = times_of(first, job_started=0)
    assert found.seconds_by_cause(until=40) == {"set-up": 10, "training": 20, "lost": 10}
    found.add(event("start", 45))
    assert found.seconds_by_cause(until=50) == {"set-up": 15, "training": 20, "lost": 15}
    for each in steps(22, 32, 50):
        found.add(each)
    assert found.seconds_by_cause() == {"set-up": 15, "training": 30, "lost": 15}


def test_restart_of_a_script_without_a_start_line_is_lost_until_its_next_line() -> None:
    found = times_of([*steps(1, 21, 10), event("restart", 35, number=1), *steps(11, 21, 50)])
    # Step 11, which took the second from 19 to 20, is also repeated.
    assert found.seconds_by_cause() == {"training": 19, "lost": 31}


def test_second_start_since_the_job_was_started_is_a_restart_and_its_gap_is_lost() -> None:
    first = [event("start", 10), *steps(1, 21, 20)]
    found = times_of([*first, event("start", 60), *steps(22, 32, 65)], job_started=0)
    assert found.seconds_by_cause() == {"waiting": 10, "set-up": 15, "training": 30, "lost": 20}
    stopped = times_of([*first, event("start", 60), *steps(22, 32, 65)], job_started=50)
    assert stopped.seconds_by_cause() == {"waiting": 10, "set-up": 15, "training": 30, "stopped": 10}


def test_restart_from_the_beginning_loses_all_steps() -> None:
    found = times_of([event("start", 0), *steps(1, 21, 10), event("start", 40), *steps(1, 11, 50)])
    assert found.seconds_by_cause() == {"set-up": 20, "training": 10, "lost": 30}


def test_second_restart_from_the_same_checkpoint_counts_each_lost_step_once() -> None:
    first = [event("start", 0), *steps(1, 21, 10)]
    second = [event("start", 30), event("resume", 30, step=11), *steps(12, 22, 40)]
    third = [event("start", 50), event("resume", 50, step=11), *steps(12, 22, 60)]
    found = times_of([*first, *second, *third])
    assert found.seconds_by_cause() == {"set-up": 30, "training": 20, "lost": 20}
    assert sum(each.seconds for each in found.spans()) == pytest.approx(70)


def test_time_between_two_runs_is_stopped_and_excluded_from_goodput() -> None:
    found = times_of([event("start", 0), *steps(1, 11, 10), event("done", 20), event("start", 500), *steps(1, 11, 510)])
    assert found.seconds_by_cause() == {"set-up": 20, "training": 20, "stopped": 480}
    assert goodput(found.seconds_by_cause()) == 50


def test_recreated_job_waits_only_since_its_creation() -> None:
    found = times_of([event("start", 0), *steps(1, 11, 10), event("start", 500), *steps(12, 22, 510)], job_started=480)
    assert found.seconds_by_cause() == {"waiting": 20, "set-up": 20, "training": 20, "stopped": 460}


def test_evaluation_and_slow_save_are_not_training() -> None:
    test = [*steps(1, 21, 10), event("test", 34), event("checkpoint", 36, step=21, seconds=5.0)]
    found = times_of([event("start", 0), *test, *steps(22, 32, 38)])
    # Steps 21 and 22 are 8 s apart: 1 s of training, 4 s until the test's event, and 3 s of delay by the save.
    assert found.seconds_by_cause() == {"set-up": 10, "training": 31, "evaluating": 4, "saving": 3}


def test_save_in_the_background_delays_nothing() -> None:
    first = [*steps(1, 21, 10), event("checkpoint", 25.5, step=11, seconds=5.0)]
    first.sort(key=lambda each: float(each["time"]))
    assert times_of([event("start", 0), *first]).seconds_by_cause() == {"set-up": 10, "training": 20}


def test_clock_that_goes_back_has_no_negative_time() -> None:
    found = times_of([event("start", 100), *steps(1, 5, 110), *steps(6, 10, 90)])
    assert all(each > 0 for each in found.seconds_by_cause().values())


def test_spans_and_marks_of_a_long_run_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_times, "MAX_SPANS", 100)
    monkeypatch.setattr(run_times, "MAX_MARKS", 100)
    found = RunTimes()
    found.add(event("start", 0))
    for number in range(2000):
        found.add(event("train", 10 + 2 * number, global_step=number + 1))
        found.add(event("test", 11 + 2 * number))
    assert len(found.spans()) <= 102
    found.add(event("start", 5000))
    found.add(event("resume", 5001, step=1000))
    assert found.seconds_by_cause()["lost"] == pytest.approx(2000, rel=0.1)


def test_short_spans_join_the_span_before_them() -> None:
    spans = [Span(0, 50, "training"), Span(50, 50.1, "saving"), Span(50.1, 99, "training"), Span(99, 100, "lost")]
    assert without_short(spans, 100) == [Span(0, 99, "training"), Span(99, 100, "lost")]
    assert without_short([], 100) == []


def test_goodput_of_a_run_that_never_started_is_none() -> None:
    assert goodput({"stopped": 5.0}) is None
