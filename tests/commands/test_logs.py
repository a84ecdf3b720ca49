"""Events, progress, exit codes and errors in the lines of a host's log."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands.monitor.logs import Progress, before_report, exit_codes, looks_like_an_error, parse_event

TORCHRUN = (Path(__file__).parent / "torchrun_failure.txt").read_text(encoding="utf-8").splitlines()
"""Output of torchrun 2.15 with two processes, of which rank 1 exits with 78."""


def test_parse_event_returns_name_fields_and_rank() -> None:
    event = parse_event("train epoch=1 step=40/125 loss=0.4312 accuracy=86.21 rate=812.3 rank=3/8 host=digits-0")
    assert event is not None
    assert (event.name, event.rank) == ("train", 3)
    assert event.fields["step"] == "40/125"
    assert event.fields["loss"] == "0.4312"


def test_parse_event_returns_a_straggler() -> None:
    event = parse_event("straggler slow_rank=3 slower=1.9000 rank=0/4 host=digits-0 time=10:00:30")
    assert event is not None
    assert (event.name, event.rank, event.fields["slow_rank"]) == ("straggler", 0, "3")


def test_parse_event_after_a_launcher_prefix_finds_the_event() -> None:
    event = parse_event("(RayTrainWorker pid=114, ip=10.65.0.3) train epoch=8 step=62/62 loss=0.0440 rank=1/2")
    assert event is not None
    assert (event.name, event.rank) == ("train", 1)
    assert parse_event("(RayTrainWorker pid=114) test epoch=8 accuracy=97.55 rank=0/2") is not None
    assert parse_event("(TrainController pid=524) Started training worker group of size 2:") is None


@pytest.mark.parametrize(
    ("fields", "global_step", "epoch_step", "place"),
    [
        ("step=1690/2000 epoch=34", (1690, 2000), None, "1690/2000, epoch 34"),
        ("step=40/125 epoch=2 global_step=165", (165, 0), (40, 125), "40/125 of epoch 2"),
        ("step=40/125 epoch=2 global_step=165/500", (165, 500), (40, 125), "40/125 of epoch 2"),
        ("global_step=165/500", (165, 500), None, "165/500"),
        ("step=12", (12, 0), None, "12"),
        ("epoch=3", None, None, "epoch 3"),
        ("step=x/y epoch=2 global_step=z", None, None, "x/y, epoch 2"),
        ("loss=1", None, None, ""),
    ],
)
def test_step_counts_over_all_epochs_unless_the_line_has_a_global_step(
    fields: str, global_step: tuple[int, int] | None, epoch_step: tuple[int, int] | None, place: str
) -> None:
    event = parse_event(f"train {fields}")
    assert event is not None
    assert (event.global_step, event.epoch_step, event.place) == (global_step, epoch_step, place)


@pytest.mark.parametrize("line", ["", "train", "training step=1", "train of thought", "step=1 train", "  train step=1"])
def test_parse_event_of_other_text_returns_none(line: str) -> None:
    assert parse_event(line) is None


def test_progress_with_several_ranks_follows_the_lowest_rank() -> None:
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


def test_exit_codes_of_a_torchrun_report_gives_one_per_rank() -> None:
    assert exit_codes(TORCHRUN) == {0: -15, 1: 78}
    assert exit_codes(["rank : none", "exitcode  : 78"]) == {}


def test_before_report_returns_the_lines_before_the_torchrun_report() -> None:
    lines = before_report(TORCHRUN)
    assert "trainer: --epochs 'x': must be a number" in lines
    assert not any("Traceback" in line or "exitcode" in line for line in lines)
    assert before_report(["one", "two"]) == ["one", "two"]


def test_looks_like_an_error_distinguishes_errors_from_other_text() -> None:
    assert looks_like_an_error("RuntimeError: Connection closed by peer")
    assert looks_like_an_error("trainer: disk full: checkpoint refused")
    assert not looks_like_an_error("downloading weights")
    assert not looks_like_an_error("train step=1 loss=1.0 note=error")
