"""Live line of a job: its parts, its width, the time left, and the spark line of the losses."""

from __future__ import annotations

import pytest

from commands.monitor.logs import parse_event
from commands.monitor.screen import BLOCKS, Training, live_line, spark_line


def training_progress(*lines: str, epochs: int = 0) -> Training:
    """Return the progress of a job that has printed these lines, one a second."""
    found = Training(epochs=epochs)
    for number, line in enumerate(lines):
        event = parse_event(line)
        assert event is not None
        found.read(event, float(number))
    return found


def test_live_line_has_epoch_step_loss_rate_and_time_left() -> None:
    found = training_progress(
        "train epoch=1 step=50/100 loss=2.0 rate=10 global_rate=812.3 rank=0/2 global_step=50 time=10:00:00",
        "train epoch=2 step=50/100 loss=1.0 rate=10 global_rate=823.9 rank=0/2 global_step=150 time=10:00:20",
        epochs=4,
    )
    text = live_line("digits", found, 100)
    assert text == f"digits  epoch 2/4  step 50/100  loss 1.0  {BLOCKS[-1]}{BLOCKS[0]}  824/s  50 s left"


@pytest.mark.parametrize("width", [20, 40, 60, 80, 100, 120])
def test_live_line_fits_the_width(width: int) -> None:
    fields = "global_rate=864 rank=0/2 global_step=9"
    lines = [f"train epoch=3 step={step}/63 loss={3 / step:.4f} {fields}" for step in range(1, 60)]
    text = live_line("my-language-model", training_progress(*lines, epochs=8), width)
    assert len(text) <= width
    assert text.startswith("my-language-model")
    if width >= 80:
        assert any(block in text for block in BLOCKS)
        assert "left" in text


def test_training_reads_only_the_lowest_rank() -> None:
    found = training_progress("train epoch=1 step=1/9 loss=1 rank=1/2", "train epoch=1 step=2/9 loss=2 rank=0/2")
    event = parse_event("train epoch=1 step=9/9 loss=9 rank=1/2")
    assert event is not None
    found.read(event, 9.0)
    assert found.fields["step"] == "2/9"
    assert list(found.losses) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("lines", "epochs"),
    [
        (["train epoch=1 step=1/9 loss=1"], 2),
        (["train epoch=1 step=1/9 loss=1 global_step=1", "train epoch=1 step=2/9 loss=1 global_step=2"], 0),
        (["train epoch=1 step=1 loss=1 global_step=1", "train epoch=1 step=2 loss=1 global_step=2"], 2),
        (["train loss=1", "train loss=0.5"], 0),
        (["train step=x/y loss=nan", "train step=1 loss=1"], 0),
    ],
)
def test_time_left_without_progress_toward_a_known_end_is_unknown(lines: list[str], epochs: int) -> None:
    found = training_progress(*lines, epochs=epochs)
    assert found.seconds_left() is None
    assert "left" not in live_line("job", found, 80)


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ("step={}/11", "step 2/11"),
        ("epoch={} step={}/11", "step 2/11"),
        ("epoch={} step=1/1 global_step={}/11", "step 1/1"),
        ("epoch={} global_step={}/11", "step 2/11"),
    ],
)
def test_time_left_of_a_job_without_epochs_uses_its_global_steps(fields: str, shown: str) -> None:
    found = training_progress(*(f"train {fields.replace('{}', str(step))} loss=1" for step in (1, 2)))
    assert found.seconds_left() == pytest.approx(9)
    assert shown in live_line("job", found, 80)


def test_time_left_after_a_restart_uses_only_later_steps() -> None:
    found = training_progress(
        "train step=1/11 loss=1",
        "train step=6/11 loss=1",
        "restart number=1 counted=1/3 failed_rank=0 exit_code=-9",
        "resume step=2 epoch=1 rank=0/1",
        "train step=3/11 loss=1",
        "train step=4/11 loss=1",
    )
    assert found.seconds_left() == pytest.approx(7)


def test_time_left_over_midnight_is_positive() -> None:
    found = training_progress("train step=1/3 loss=1 time=23:59:59", "train step=2/3 loss=1 time=00:00:01")
    assert found.seconds_left() == pytest.approx(2)


def test_time_left_counts_days_between_the_printed_times() -> None:
    lines = [f"train step={hour}/60 loss=1 time={hour % 24:02}:00:00" for hour in range(31)]
    assert training_progress(*lines).seconds_left() == pytest.approx(30 * 3600)


def test_time_left_with_a_line_of_an_earlier_time_counts_no_day() -> None:
    found = training_progress(
        "train step=1/9 loss=1 rank=1/2 time=10:00:00",
        "train step=2/9 loss=1 rank=1/2 time=10:00:10",
        "train step=2/9 loss=1 rank=0/2 time=10:00:09",
        "train step=3/9 loss=1 rank=0/2 time=10:00:20",
    )
    assert found.seconds_left() == pytest.approx(60)


@pytest.mark.parametrize(
    ("values", "width", "expected"),
    [
        ([], 5, ""),
        ([1.0], 5, ""),
        ([2.0, 1.0], 5, "█▁"),
        ([1.0, 1.0, 1.0], 5, "▁▁▁"),
        ([8.0, 6.0, 4.0, 2.0], 2, "█▁"),
        ([3.0, float("nan"), float("inf"), 1.0], 5, "█▁"),
    ],
)
def test_spark_line_has_blocks_from_the_least_to_the_greatest_mean(
    values: list[float], width: int, expected: str
) -> None:
    assert spark_line(values, width) == expected
