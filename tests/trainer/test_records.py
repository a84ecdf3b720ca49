"""Records of a run: lines of JSON, TensorBoard curves, and runs in Weights & Biases."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]  # it has no types

from commands.monitor.logs import parse_event
from tests.trainer.processes import json_lines, metrics
from tests.trainer.saving import small_state
from trainer import loop
from trainer.checkpoints.state import RunCheckpoints
from trainer.config import parse
from trainer.exit_codes import DataError, StorageError
from trainer.reporter import FLUSH_SECONDS, JsonFile, Record, Reporter, Sink, TensorBoard, WeightsAndBiases, Writer
from trainer.runtime import Runtime, start_runtime
from trainer.storage import Folder


def reject_constant(name: str) -> float:
    """Raise an error for NaN or infinity. Python's parser accepts both, but JSON has neither."""
    raise AssertionError(f"{name} is not JSON")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_number_that_is_not_finite_becomes_null(value: float) -> None:
    values: dict[str, str | int | float] = {"loss": value, "accuracy": 1.5, "host": "nan", "rank": 0}
    line = Record(name="train", time=1.0, values=values, global_step=3).line()
    expected = {"event": "train", "time": 1.0, **values, "loss": None, "global_step": 3}
    assert json.loads(line, parse_constant=reject_constant) == expected
    assert line.endswith("\n")


def test_events_are_written_while_more_arrive(tmp_path: Path) -> None:
    writer = Writer(JsonFile(Folder(f"file://{tmp_path}"), "events.jsonl"))
    deadline = time.monotonic() + 20 * FLUSH_SECONDS
    while not (tmp_path / "events.jsonl").exists() or not json_lines(tmp_path / "events.jsonl"):
        assert time.monotonic() < deadline, "no event was written"
        writer.put(Record(name="train", time=time.time(), values={}, global_step=1))
        time.sleep(FLUSH_SECONDS / 10)
    writer.end()
    writer.wait(time.monotonic() + 60)


class FullDisk(Sink):
    """A sink on a full disk."""

    def write(self, record: Record) -> None:
        raise StorageError(f"{record.name}: the disk is full")


def test_writer_error_is_raised_at_every_check() -> None:
    writer = Writer(FullDisk())
    writer.put(Record(name="train", time=0.0, values={}, global_step=1))
    writer.wait(time.monotonic() + 60)
    for _ in range(2):
        with pytest.raises(StorageError, match="train: the disk is full"):
            writer.check()


def test_save_waits_until_the_events_of_its_steps_are_written(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = JsonFile.write

    def slow(self: JsonFile, record: Record) -> None:
        time.sleep(0.02)
        write(self, record)

    monkeypatch.setattr(JsonFile, "write", slow)
    report, bucket = Reporter(0, 1, Folder(f"file://{tmp_path}")), Folder(f"file://{tmp_path}/bucket")
    checkpoints = RunCheckpoints(parse(["digits"]), bucket, runtime, small_state(), report)
    for step in range(20):
        report.event("train", global_step=step)
    written: list[int] = []
    monkeypatch.setattr(
        checkpoints, "save", lambda *_state: written.append(len(json_lines(tmp_path / "metrics" / "rank-0.jsonl")))
    )
    checkpoints.save_state()
    report.close()
    assert written == [20]


def test_printed_train_event_has_the_step_in_the_epoch_and_the_global_step(capsys: pytest.CaptureFixture[str]) -> None:
    report = Reporter(0, 1, None)
    report.event("train", global_step=73, epoch=2, step=(10, 63))
    report.event("checkpoint", step=73)
    train, checkpoint = map(parse_event, capsys.readouterr().out.splitlines())
    assert train is not None
    assert (train.global_step, train.epoch_step) == ((73, 0), (10, 63))
    assert checkpoint is not None
    assert "global_step" not in checkpoint.fields


def test_original_error_is_reported_instead_of_cleanup_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "tensorboard").write_text("in the way")
    config = parse(["digits", "--device=cpu", f"--bucket=file://{tmp_path}"])

    class FailingTraining:
        """A training that reports one event and fails."""

        def __init__(self, *parts: object) -> None:
            report = parts[2]
            assert isinstance(report, Reporter)
            report.event("train", global_step=1, loss=1.0)

        def run(self) -> None:
            raise DataError("the original error")

    monkeypatch.setattr(loop, "Training", FailingTraining)
    with pytest.raises(DataError, match="the original error"):
        loop.train(config, start_runtime(config), lambda: False)
    assert [line["loss"] for line in metrics(tmp_path)] == [1.0]


@pytest.mark.parametrize(
    ("before", "lines"),
    [(b'{"event": "a"}\n{"ev', 3), (b'{"event": "a"}\n', 2), (b"", 1)],
    ids=["partial", "complete", "empty"],
)
def test_event_after_lines_of_an_earlier_run_starts_on_a_new_line(tmp_path: Path, before: bytes, lines: int) -> None:
    file = tmp_path / "events.jsonl"
    file.write_bytes(before)
    sink = JsonFile(Folder(f"file://{tmp_path}"), file.name)
    sink.write(Record(name="start", time=1.0, values={}, global_step=None))
    sink.close()
    found = file.read_text().splitlines()
    assert len(found) == lines
    assert json.loads(found[-1])["event"] == "start"


def test_curves_continue_where_the_run_resumes(tmp_path: Path) -> None:
    for steps in ((10, 20, 30, 40), (31, 40, 50)):
        sink = TensorBoard(Folder(f"file://{tmp_path}"))
        for step in steps:
            sink.write(Record(name="train", time=1.0, values={"loss": 1.0}, global_step=step))
        sink.close()
        time.sleep(1.1)  # the names of the files contain the time in whole seconds
    found = EventAccumulator(str(tmp_path)).Reload()
    assert [point.step for point in found.Scalars("train/loss")] == [10, 20, 30, 31, 40, 50]


def test_wandb_run_without_key_is_kept_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    run = WeightsAndBiases(Folder(f"file://{tmp_path}/runs"), job="digits", rank=0, mode="online")
    run.write(Record(name="train", time=0.0, values={"loss": 1.0}, global_step=1))
    run.close()
    assert "warning: W&B did not accept the run of this rank" in capsys.readouterr().err
    assert list((tmp_path / "runs").rglob("offline-run-*/*.wandb"))


def test_resumed_job_continues_its_wandb_run_and_a_new_job_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    resume = Record(name="resume", time=0.0, values={"step": 1}, global_step=None)
    for first_records in ([], [resume], []):
        run = WeightsAndBiases(Folder(f"file://{tmp_path}/runs"), job="digits", rank=0, mode="offline")
        for record in (*first_records, Record(name="train", time=0.0, values={"loss": 1.0}, global_step=1)):
            run.write(record)
        run.close()
        time.sleep(1.1)  # the names of the folders contain the time in whole seconds
    first, resumed, new = (path.parent.name[-8:] for path in sorted((tmp_path / "runs").rglob("*.wandb")))
    assert first == resumed != new
