"""Classification of the lines of a host's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands.monitor.logs import Progress, before_report, exit_codes, looks_like_an_error, parse_event

TORCHRUN = (Path(__file__).parent / "torchrun_failure.txt").read_text(encoding="utf-8").splitlines()
"""Output of torchrun 2.15 with two processes, of which rank 1 exits with 78."""


def test_an_event_has_its_values_and_rank() -> None:
    event = parse_event("train epoch=1 step=40/125 loss=0.4312 accuracy=86.21 rate=812.3 rank=3/8 host=digits-0")
    assert event is not None
    assert (event.name, event.rank) == ("train", 3)
    assert event.fields["step"] == "40/125"
    assert event.fields["loss"] == "0.4312"


def test_an_event_after_a_launchers_prefix_is_found() -> None:
    event = parse_event("(RayTrainWorker pid=114, ip=10.65.0.3) train epoch=8 step=62/62 loss=0.0440 rank=1/2")
    assert event is not None
    assert (event.name, event.rank) == ("train", 1)
    assert parse_event("(RayTrainWorker pid=114) test epoch=8 accuracy=97.55 rank=0/2") is not None
    assert parse_event("(TrainController pid=524) Started training worker group of size 2:") is None


@pytest.mark.parametrize("line", ["", "train", "training step=1", "train of thought", "step=1 train", "  train step=1"])
def test_other_text_is_no_event(line: str) -> None:
    assert parse_event(line) is None


def test_progress_is_that_of_the_first_rank_in_the_log() -> None:
    progress = Progress()
    for line in (
        "train step=1/9 loss=3.0 rank=1/2",
        "train step=2/9 loss=2.0 rank=0/2",
        "train step=3/9 loss=9.9 rank=1/2",
        "test epoch=1 accuracy=97.9 rank=0/2",
    ):
        progress.read(line)
    assert progress.value("step", "train") == "2/9"
    assert progress.value("accuracy", "done", "test") == "97.9"
    assert progress.value("test_accuracy", "done") == ""


def test_torchruns_report_gives_each_ranks_own_exit_code() -> None:
    assert exit_codes(TORCHRUN) == {0: -15, 1: 78}
    assert exit_codes(["rank : none", "exitcode  : 78"]) == {}


def test_the_lines_before_the_report_end_with_the_error() -> None:
    lines = before_report(TORCHRUN)
    assert "trainer: --epochs 'x': must be a number" in lines
    assert not any("Traceback" in line or "exitcode" in line for line in lines)
    assert before_report(["one", "two"]) == ["one", "two"]


def test_errors_are_told_from_other_text() -> None:
    assert looks_like_an_error("RuntimeError: Connection closed by peer")
    assert looks_like_an_error("trainer: disk full: checkpoint refused")
    assert not looks_like_an_error("downloading weights")
    assert not looks_like_an_error("train step=1 loss=1.0 note=error")
