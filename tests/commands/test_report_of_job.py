"""Report of a job: events of metrics and logs, restarts, curves, and a page that loads nothing from the network."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, cast

import pytest

from commands import report
from commands.bucket import Bucket
from commands.html import (
    COLUMNS,
    MANY_CELLS,
    Series,
    curves,
    format_clock,
    rank_grid,
    thinned,
    ticks,
    time_label,
    time_ticks,
)
from commands.interrupts import CommandError
from commands.monitor.cluster import Cluster, StackOutputs, Unreachable
from commands.monitor.job_state import JobState
from commands.monitor.pod_state import PodState
from commands.report import (
    JobReport,
    copy_metrics,
    default_file,
    events_of_log,
    known_restarts,
    last_events,
    log_events,
    read_events,
)
from commands.report_page import page
from tests.commands.browser import draw, needs_chromium
from tests.commands.dashboard_state import START_TIME, event, pod, stamp

STATE = JobState(name="digits", kind="indexed-job", state="complete", hosts=2)
RECORD = {
    "commit": "0123456789abcdef",
    "dirty": True,
    "script_digest": "sha256:1",
    "started": "2026-11-26T10:00:00Z",
    "finished": "2026-11-26T10:30:00Z",
    "hours": 0.5,
    "usd_per_hour": 2.0,
    "usd": 1.0,
}
RESUMED_RECORD = {**RECORD, "started": "2026-11-26T10:03:00Z"}
"""Run record of a resumed job. Its start is the last start, because Kubernetes keeps no earlier start time."""
EVENTS = [
    event("start", 0, device="cpu", precision="float32", model="digits-cnn/adamw"),
    *(
        event("train", step, loss=2 / step, accuracy=50 + step / 4, global_rate=400.0, global_step=step)
        for step in range(1, 101)
    ),
    event("checkpoint", 100, step=100),
    event("start", 200, device="cpu"),
    event("resume", 201, step=100),
    *(event("train", 100 + step, loss=2 / step, global_rate=410.0, global_step=step) for step in range(101, 200)),
    event("test", 320, accuracy=97.5, global_step=199),
    event("done", 330, test_accuracy=97.5, best_accuracy=98.0),
]


def job_report(**changes: Any) -> JobReport:
    """Return the report of a job that resumed once from a checkpoint, with these changes."""
    values: dict[str, Any] = {
        "stack": "dev",
        "job": "digits",
        "state": STATE,
        "record": RECORD,
        "settings": "name: digits\nrecipe: digits\n",
        "prices": {"cluster": 0.1, "gpus": 2.0},
        "events": EVENTS,
        "written": "2026-11-26 11:00 UTC",
    }
    return JobReport(**{**values, **changes})


def test_report_of_a_stopped_job_without_events_keeps_the_earlier_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = job_report(state=replace(STATE, state="suspended"), events=[])
    record = {**RECORD, "bucket_prefix": "jobs/digits"}
    bucket = Bucket(url=f"file://{tmp_path}", is_cluster_local=True)
    monkeypatch.setattr(report, "collect", lambda *_: (replace(found, record=record), bucket))
    (tmp_path / "jobs/digits").mkdir(parents=True)
    assert report.report("digits", None, as_json=False) == 0
    file = report.default_file(bucket, "jobs/digits", "digits")
    file.write_text("curves", encoding="utf-8")
    with pytest.raises(CommandError, match="its log was deleted with its pods"):
        report.report("digits", None, as_json=False)
    assert file.read_text(encoding="utf-8") == "curves"
    capsys.readouterr()
    assert report.report("digits", tmp_path / "page.html", as_json=True) == 0
    assert json.loads(capsys.readouterr().out)["job"] == "digits"
    assert (tmp_path / "page.html").exists()


@pytest.mark.parametrize("name", ["rank-0.jsonl", "rank-0/1795687200.000.jsonl"])
def test_read_events_of_rank_0_skips_a_truncated_line(name: str, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    lines = [json.dumps(each) for each in (EVENTS[1], EVENTS[0])]
    (tmp_path / name).write_text("\n".join([*lines, '{"event": "tra']), encoding="utf-8")
    (tmp_path / "rank-1.jsonl").write_text(json.dumps(event("train", 5)), encoding="utf-8")
    assert [each["event"] for each in read_events(tmp_path)] == ["start", "train"]


def test_events_of_log_have_times_and_steps() -> None:
    found = events_of_log(
        [
            ("2026-11-26T10:00:00.123456789Z", "start device=cpu rank=0/2"),
            ("2026-11-26T10:00:01.5Z", "train step=10/63 loss=0.5 rank=0/2"),
            ("2026-11-26T10:00:02Z", "train step=10/63 loss=0.7 rank=1/2"),
            ("2026-11-26T10:00:03Z", "some other line"),
        ]
    )
    assert [(each["event"], each["time"] - START_TIME) for each in found] == [("start", 0), ("train", 1)]
    assert (found[1]["global_step"], found[1]["global_steps"], found[1]["loss"]) == (10, 63, 0.5)


@pytest.mark.parametrize(
    "lines",
    [
        [
            "train step=1950/2000 epoch=40 loss=0.5",
            "train step=2000/2000 epoch=41 loss=0.4",
            "test step=2000 epoch=41 loss=0.6",
        ],
        [
            "train step=50/100 epoch=20 global_step=1950 loss=0.5",
            "train step=100/100 epoch=20 global_step=2000 loss=0.4",
            "test epoch=20 global_step=2000 loss=0.6",
        ],
    ],
    ids=["steps over all epochs", "steps within an epoch"],
)
def test_curves_of_a_log_have_the_global_step_of_train_and_test_lines(lines: list[str]) -> None:
    found = job_report(events=events_of_log([("2026-11-26T10:00:01Z", line) for line in lines]))
    assert "the job has printed no <code>start</code> event" in page(found)
    assert "2026-11-26 10:00:00 UTC to 2026-11-26 10:30:00 UTC" in page(found)
    assert found.curve("train", "loss") == [(1950, 0.5), (2000, 0.4)]
    assert found.curve("test", "loss") == [(2000, 0.6)]
    assert "training loss at step 2,000<" in page(found)


def test_events_of_log_have_the_global_step_and_ignore_the_printed_clock() -> None:
    line = "train epoch=3 step=10/63 loss=0.5 rank=0/2 host=digits-0 global_step=136 time=13:05:01"
    assert events_of_log([("2026-11-26T10:00:01Z", line)])[0] == {
        "event": "train",
        "time": START_TIME + 1,
        "epoch": 3.0,
        "step": 10.0,
        "global_step": 2 * 63 + 10,
        "loss": 0.5,
        "rank": 0.0,
        "host": "digits-0",
    }


def test_page_of_events_of_a_log_shows_integers_as_integers() -> None:
    lines = ["start ranks=2 rank=0/2", "train step=2200/4400 loss=0.5", "checkpoint step=2200", "resume step=2200"]
    found = events_of_log([(f"2026-11-26T10:00:0{second}Z", line) for second, line in enumerate(lines)])
    text = page(job_report(events=found))
    assert "checkpoint of step 2200, " in text
    assert "<th>ranks</th><td>2</td>" in text
    assert "2200.0" not in text


RESUMED = replace(STATE, is_resumed=True)


def restarts_on_page(text: str) -> str:
    """Return the number of restarts on a page, with its label."""
    found = re.search(r"<b>(\d+)</b><span>(restarts? [a-z ]+)</span>", text)
    return f"{found[1]} {found[2]}" if found else ""


def test_report_of_a_log_counts_restarts_since_the_last_start_of_a_stopped_job() -> None:
    lines = ["start ranks=2", "train step=1817/2000 loss=0.5"]
    events = events_of_log([(f"2026-11-26T10:00:1{second}Z", line) for second, line in enumerate(lines)])
    found = job_report(state=RESUMED, events=events)
    assert restarts_on_page(page(found)) == "0 restarts since its last start"
    assert "attempt 1, first line at step 1817, " in page(found)
    assert "from the beginning" not in page(found)
    assert "<span>from last start to end</span>" in page(found)
    assert "in 0.50 hours since its last start" in page(found)
    assert found.as_json()["attempts_since_last_start_only"]
    assert restarts_on_page(page(job_report(events=events))) == "0 restarts or resumes"


def test_report_of_metrics_counts_all_restarts_and_resumes_of_a_stopped_job() -> None:
    found = job_report(state=RESUMED, record=RESUMED_RECORD)
    assert (found.earlier_attempts, restarts_on_page(page(found))) == (1, "1 restart or resume")
    again = job_report(state=RESUMED, record=RESUMED_RECORD, restarts=1)
    assert (again.as_json()["attempts"], restarts_on_page(page(again))) == (3, "2 restarts or resumes")


def log_of(found: PodState) -> list[tuple[str, str]]:
    """Return the log of a pod: a start, a restart, and a line that only resembles a restart."""
    lines = ["start rank=0/2", "restart number=1 failed_rank=1 exit_code=-9", "restart number=x"]
    return [(f"2026-11-26T10:00:0{second}Z", f"{line} pod={found.uid}") for second, line in enumerate(lines)]


def test_events_and_restarts_of_a_log_include_replaced_pods_and_ranks_restarted_in_place() -> None:
    before, now = replace(pod(0), uid="before", created=stamp(0)), replace(pod(0), uid="now", created=stamp(9))
    found = log_events(log_of, [now, before, pod(1)])
    assert [(each["event"], each["pod"]) for each in found if each["event"] == "start"] == [
        ("start", "before"),
        ("start", "now"),
    ]
    assert known_restarts([now, pod(1)], found) == 1
    assert known_restarts([now, before, pod(1)], []) == 1
    assert known_restarts([pod(0), pod(1)], found[:1]) == 0


def test_report_counts_a_restart_that_the_cluster_knows_before_rank_0_prints_again() -> None:
    found = job_report(events=EVENTS[:101], restarts=1)
    assert (found.as_json()["attempts"], restarts_on_page(page(found))) == (2, "1 restart or resume")


def test_page_omits_keys_without_a_value() -> None:
    record = {**RECORD, "chips": 0}
    text = page(job_report(record=record, rank_states={0: "succeeded"}, events=[EVENTS[0], event("checkpoint", 5)]))
    assert "<th>chips</th>" not in text
    assert "rank 0, succeeded<" in text
    assert "?" not in text
    assert "<th>chips</th><td>4</td>" in page(job_report(record={**RECORD, "chips": 4}))


def test_curves_keep_the_last_label_of_an_axis_inside_the_picture() -> None:
    drawn = curves([Series(name="loss", points=[(74_000, 2.0), (82_000, 1.0)])], unit="loss")
    assert re.search(r'<text x="748.0" y="210" text-anchor="end">82,000</text>', drawn)
    assert re.search(r'<text x="62.0" y="210" text-anchor="middle">74,000</text>', drawn)


def test_copy_metrics_copies_all_of_rank_0_and_the_newest_of_other_ranks(tmp_path: Path) -> None:
    for rank in ("rank-0", "rank-1"):
        for part in range(4):
            path = tmp_path / "bucket" / "metrics" / rank / f"{part}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps({"event": "train", "time": part}) + "\n", encoding="utf-8")
    (tmp_path / "copied").mkdir()
    bucket = Bucket(url=f"file://{tmp_path}/bucket", is_cluster_local=True)
    copy_metrics(bucket, "metrics", tmp_path / "copied")
    assert [event["time"] for event in read_events(tmp_path / "copied")] == [0, 1, 2, 3]
    assert {rank: event["time"] for rank, event in last_events(tmp_path / "copied").items()} == {0: 3, 1: 3}
    assert len(list((tmp_path / "copied" / "rank-1").iterdir())) == 2


def test_last_events_of_each_rank_come_from_its_file_or_parts(tmp_path: Path) -> None:
    (tmp_path / "rank-0.jsonl").write_text(json.dumps(event("train", 3, rate=1.0)) + "\n", encoding="utf-8")
    (tmp_path / "rank-12").mkdir()
    for name, value in (("1.000.jsonl", 2.0), ("2.000.jsonl", 3.0)):
        text = json.dumps(event("train", 3, rate=value)) + "\n"
        (tmp_path / "rank-12" / name).write_text(text, encoding="utf-8")
    (tmp_path / "rank-12" / "3.000.jsonl").write_text(json.dumps(event("done", 9)) + "\n", encoding="utf-8")
    (tmp_path / "other.jsonl").write_text(json.dumps(event("train", 3)) + "\n", encoding="utf-8")
    assert {rank: each["rate"] for rank, each in last_events(tmp_path).items()} == {0: 1.0, 12: 3.0}


def test_curve_of_repeated_steps_has_the_values_of_the_later_run() -> None:
    repeated = [event("train", 1, loss=2.0, global_step=5), event("train", 9, loss=1.0, global_step=5)]
    assert job_report(events=repeated).curve("train", "loss") == [(5.0, 1.0)]


def test_curve_of_a_run_that_began_again_ends_at_its_own_last_step() -> None:
    again = [event("start", 500), *(event("train", 500 + step, loss=9.0, global_step=step) for step in (1, 3))]
    found = job_report(events=[*EVENTS, *again])
    assert found.curve("train", "loss") == [(1.0, 9.0), (3.0, 9.0)]
    assert "training loss at step 3<" in page(found)


SETTINGS = """\
config:
  trainyard:platform: {kind: local}
  trainyard:jobs: [{name: digits, recipe: digits}]
"""


class FakeCluster:
    """Cluster with a job that `rerun --fresh` created, and with a pod of the earlier job."""

    def jobs(self, names: list[str]) -> dict[str, JobState]:
        return {name: replace(STATE, state="running", uid="uid-digits", started=stamp(1000)) for name in names}

    def pods(self, _names: list[str]) -> list[PodState]:
        return [pod(0, uid="old", owner="uid-before", state="failed"), pod(0)]

    def stamped_log(self, found: PodState) -> list[tuple[str, str]]:
        return [(stamp(1002), f"start node={found.uid}")]


def test_report_with_a_missing_settings_file_is_an_error_of_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = {"kubeconfig_path": str(tmp_path), "namespace": "n", "jobs": ["digits"], "bucket_url": "file:///bucket"}
    monkeypatch.setattr(report, "PROJECT", tmp_path)
    monkeypatch.setattr(report, "outputs_with", lambda *_names: outputs)
    with pytest.raises(CommandError, match=r"Pulumi\.dev\.yaml: no such file"):
        report.collect("dev", "digits")


def test_report_after_rerun_fresh_has_only_the_fresh_run_and_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = Bucket(url=f"file://{tmp_path}/bucket", is_cluster_local=True)
    record = {**RECORD, "bucket_prefix": "digits", "checkpoints": "checkpoints/digits", "chips": 0}
    outputs = {
        "kubeconfig_path": str(tmp_path),
        "namespace": "n",
        "jobs": ["digits"],
        "run_records": {"digits": record},
    }
    monkeypatch.setattr(report, "PROJECT", tmp_path)
    monkeypatch.setattr(report, "outputs_with", lambda *_names: {**outputs, "bucket_url": bucket.url})
    monkeypatch.setattr(StackOutputs, "cluster", lambda _self: FakeCluster())
    (tmp_path / "Pulumi.dev.yaml").write_text(SETTINGS, encoding="utf-8")
    metrics = Path(bucket.location("digits/metrics/rank-0.jsonl"))

    def write(events: list[dict[str, Any]]) -> None:
        metrics.parent.mkdir(parents=True, exist_ok=True)
        with metrics.open("a", encoding="utf-8") as opened:
            opened.writelines(f"{json.dumps(each)}\n" for each in events)

    write(EVENTS)
    # An update changes the record in the outputs, but does not start the job again.
    begun = json.dumps({**record, "uid": "uid-digits", "commit": "fedcba9876543210"})
    Path(bucket.location("digits/run-record.json")).write_text(begun, encoding="utf-8")
    before, _ = report.collect("dev", "digits")
    assert before.record["commit"] == "fedcba9876543210"
    assert (before.curve("train", "loss")[-1][0], before.fresh_start) == (199.0, "")
    bucket.put_curves_aside("digits")
    # The first fresh attempt ends before its first checkpoint, and its restart still counts.
    write([event("start", 1003), *(event("train", 1003 + step, loss=1.0, global_step=step) for step in range(1, 50))])
    write([event("start", 1100), *(event("train", 1100 + step, loss=1.0, global_step=step) for step in range(1, 11))])
    found, _ = report.collect("dev", "digits")
    text = page(found)
    assert f"<p>The job started from the beginning at {found.fresh_start} (rerun --fresh)" in text
    assert "training loss at step 10<" in text
    assert restarts_on_page(text) == "1 restart or resume"
    assert (found.newest_checkpoint, list(found.end)) == ("", [])
    assert found.times.starts == [START_TIME + 1003, START_TIME + 1100]
    assert found.times.seconds_by_cause()["lost"] > 40
    assert found.as_json()["fresh_start"] == found.fresh_start
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC", found.fresh_start)


def test_thinned_keeps_every_spike_of_a_million_points() -> None:
    points = [(float(step), 1.0) for step in range(1_000_000)]
    points[123_456] = (123_456.0, 9.0)
    points[500_000] = (500_000.0, math.nan)
    found = thinned(points)
    assert len(found) <= 2 * COLUMNS
    assert (123_456.0, 9.0) in found
    assert found == sorted(found)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0, 10, [0, 2, 4, 6, 8, 10]), (0.1, 0.35, [0.1, 0.15, 0.2, 0.25, 0.3, 0.35]), (3, 3, [3])],
)
def test_ticks_are_round_numbers(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("seconds", "labels"),
    [
        (55, ["0 s", "10 s", "20 s", "30 s", "40 s", "50 s"]),
        (170, ["0 s", "30 s", "1 min", "1 min 30 s", "2 min", "2 min 30 s"]),
        (1500, ["0 s", "5 min", "10 min", "15 min", "20 min", "25 min"]),
        (9000, ["0 s", "30 min", "1 h", "1 h 30 min", "2 h", "2 h 30 min"]),
        (13 * 86400, ["0 s", "5 d", "10 d"]),
        (0.5, ["0 s"]),
    ],
)
def test_time_axis_has_round_times(seconds: float, labels: list[str]) -> None:
    assert [time_label(each) for each in time_ticks(seconds)] == labels


def test_time_line_of_a_page_has_round_times() -> None:
    assert re.findall(r">(\d+ (?:s|min)(?: \d+ s)?)</text>", page(job_report())) == [
        "0 s",
        "1 min",
        "2 min",
        "3 min",
        "4 min",
        "5 min",
    ]


def test_curves_of_values_over_many_decades_are_logarithmic() -> None:
    falling = Series(name="loss", points=[(step, 10.0**-step) for step in range(5)])
    assert "logarithmic" in curves([falling], unit="loss")
    assert "logarithmic" not in curves([Series(name="loss", points=[(0, 2), (1, 1)])], unit="loss")
    assert curves([Series(name="loss", points=[])], unit="loss") == ""


@pytest.mark.parametrize(("seconds", "text"), [(40, "40 s"), (125, "2:05"), (3725, "1:02:05")])
def test_format_clock_has_the_largest_unit_that_is_needed(seconds: float, text: str) -> None:
    assert format_clock(seconds) == text


class Tags(HTMLParser):
    """Parser of a page. It collects the unclosed tags, and the attributes that load something."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        self.loads += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "srcset")]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del tag
        self.loads += [f"{name}={value}" for name, value in attrs if name in ("src", "href", "srcset")]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_page_is_well_formed_and_loads_nothing() -> None:
    tags = Tags()
    tags.feed(page(job_report()))
    assert (tags.open, tags.loads) == ([], [])


def test_page_shows_result_attempts_price_and_settings() -> None:
    text = page(job_report())
    assert '<b class="good">complete</b>' in text
    assert "<b>97.5 %</b><span>test accuracy</span>" in text
    assert "attempt 2, from step 100, 2026-11-26 10:03:20 UTC" in text
    assert "checkpoint of step 100" in text
    assert "resumed from step 100" in text
    assert "$2.00 an hour, $1.00 in 0.50 hours" in text
    assert "recipe: digits" in text


def test_page_shows_goodput_by_cause_and_the_ranks_by_speed() -> None:
    ranks = {rank: {"rate": 400.0 if rank != 3 else 200.0, "global_step": 199} for rank in range(4)}
    states = {0: "succeeded", 1: "failed", 2: "succeeded", 3: "succeeded"}
    text = page(job_report(ranks=ranks, rank_states=states, record=RESUMED_RECORD))
    assert "<h3>Goodput: " in text
    assert "steps that a restart repeated" not in text
    assert 'fill="var(--training)"' in text
    assert "<td>rank 3, succeeded, step 199, 50 % of the median speed</td>" in text
    assert re.findall(r"<i style=\"background:[^\"]*\"></i>(ended|failed|slow|running|not running)", text) == [
        "ended",
        "failed",
        "slow",
    ]


def goodput_on_page(text: str) -> str:
    """Return the goodput on a page, in percent."""
    (percent,) = re.findall(r"Goodput: ([0-9.]+) %", text)
    return str(percent)


@pytest.mark.parametrize(("finished", "until"), [(stamp(400), 400), ("", 900)])
def test_report_of_a_job_without_a_done_event_counts_the_time_until_its_end_or_now(finished: str, until: int) -> None:
    events = [each for each in EVENTS if each["event"] != "done"]
    state = replace(STATE, finished=finished)
    found = job_report(events=events, state=state, until=state.known_until(START_TIME + 900))
    assert sum(found.as_json()["seconds_by_cause"].values()) == until
    assert goodput_on_page(page(found)) == f"{100 * found.seconds['training'] / until:.1f}"
    assert goodput_on_page(page(found)) != goodput_on_page(page(replace(found, until=None)))


def test_end_of_a_suspended_job_is_unknown() -> None:
    assert replace(STATE, state="suspended").known_until(START_TIME) is None


def test_page_of_a_run_with_repeated_steps_names_these_steps() -> None:
    again = [event("start", 150), event("train", 160, global_step=50, loss=1.0), event("done", 161)]
    text = page(job_report(events=[*EVENTS[:101], *again]))
    assert "steps that a restart repeated" in text


def test_grid_of_many_ranks_has_one_shape_for_each_colour() -> None:
    colours = ["var(--a)" if rank % 3 else "var(--b)" for rank in range(MANY_CELLS + 1)]
    drawn = rank_grid(colours, [""] * len(colours))
    assert drawn.count("<path") == 2
    assert "<rect" not in drawn
    assert rank_grid([], []) == ""
    assert rank_grid(["var(--a)"] * 5, ["a"] * 5).count("<rect") == 5


def test_page_of_a_job_without_events_and_price_gives_both_reasons() -> None:
    text = page(job_report(events=[], prices={}))
    assert "No metrics of the job can be read, and its logs have no event." in text
    assert "This cluster has no known price, because Trainyard did not create it in a cloud." in text


def test_page_of_a_stopped_job_without_events_says_that_its_log_is_gone() -> None:
    text = page(job_report(events=[], state=replace(STATE, state="suspended")))
    assert "The job is stopped. Its log was deleted with its pods, and no metrics can be read." in text
    assert "The attempts are unknown: the job is stopped." in text
    assert "has printed no" not in text


def test_page_escapes_names_and_reasons() -> None:
    state = replace(STATE, state="failed", reason="<script>")
    text = page(job_report(state=state, job="<b>"))
    assert "<script>" not in text
    assert "&lt;b&gt;" in text


class FailedCluster:
    """Cluster with the logs of a failed job. The log of host 1 cannot be read."""

    def log(self, found: PodState, _lines: int) -> list[str]:
        if found.index == 1:
            raise Unreachable("its node does not answer")
        return [f"host {found.index}: torch.OutOfMemoryError <at 3 GB>"]


def failed_pods() -> list[PodState]:
    """Return the pods of two failed hosts. The first pod of host 0 ran out of memory and was replaced."""
    values: dict[str, Any] = {"state": "failed", "memory_limit": "2Gi"}
    return [
        pod(0, uid="first", exit_code=137, reason="OOMKilled", finished=stamp(60), **values),
        pod(0, created=stamp(70), exit_code=1, reason="Error", finished=stamp(90), **values),
        pod(1, exit_code=1, reason="Error", finished=stamp(91), **values),
    ]


def test_page_of_a_failed_job_has_reasons_of_restarts_and_the_last_lines() -> None:
    pods = failed_pods()
    restart = events_of_log([(stamp(80), "restart number=1 failed_rank=1 exit_code=-9")])
    state = replace(STATE, state="failed", reason="pod train-0 failed with exit code 1")
    end = report.failed_end(cast("Cluster", FailedCluster()), state, pods)
    troubles = report.known_troubles(pods, restart)
    place = "~/bucket/checkpoints/digits/step-000000100"
    events = [event("start", 0, python="3.11.2", torch="2.13.0"), *EVENTS[1:101]]
    found = job_report(state=state, events=events, troubles=troubles, end=end, newest_checkpoint=place)
    text = page(found)
    assert text.count("pod train-0 failed with exit code 1") == 1
    assert "last lines of digits/0:\n  host 0: torch.OutOfMemoryError &lt;at 3 GB&gt;</pre>" in text
    assert "digits/1 failed on gpus-1: exit code 1" in text
    reasons = found.as_json()["restart_reasons"]
    assert [
        any(each.startswith(start) for each in reasons)
        for start in ("rank 0: exit code 137: ", "restarted after rank 1 ended with exit code -9: ")
    ] == [True, True]
    assert all(f"<td>{escape(each)}</td>" in text for each in reasons)
    assert f"<th>newest checkpoint</th><td>{place}</td>" in text
    assert "<th>python</th><td>3.11.2</td>" in text
    assert "<th>torch</th><td>2.13.0</td>" in text


def test_newest_checkpoint_is_complete_or_is_the_folder_of_a_script(tmp_path: Path) -> None:
    bucket = Bucket(url=f"file://{tmp_path}", is_cluster_local=True)
    for path in ("a/step-000000010/checkpoint.json", "a/step-000000020/part", "b/last.pt"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    assert report.newest_checkpoint(bucket, "a") == f"{tmp_path}/a/step-000000010"
    assert report.newest_checkpoint(bucket, "b") == f"{tmp_path}/b"
    assert report.newest_checkpoint(bucket, "missing") == ""
    elsewhere = Bucket(url="file:///bucket", is_cluster_local=False)
    assert report.newest_checkpoint(elsewhere, "a") == ""


def test_page_of_a_job_that_did_not_fail_has_no_last_lines() -> None:
    assert report.failed_end(cast("Cluster", FailedCluster()), STATE, failed_pods()) == []
    text = page(job_report())
    assert "last lines" not in text
    assert "Restarts and failures" not in text


def test_report_as_json_has_attempts_and_last_values() -> None:
    found = job_report(record=RESUMED_RECORD).as_json()
    assert (found["attempts"], found["checkpoints_saved"]) == (2, 1)
    assert set(found["seconds_by_cause"]) == {"set-up", "training", "evaluating", "waiting", "stopped"}
    restarted = job_report().as_json()
    assert set(restarted["seconds_by_cause"]) == {"set-up", "training", "evaluating", "lost"}
    assert found["last"]["global_step"] == 199
    assert found["result"]["test_accuracy"] == 97.5


def test_default_file_is_next_to_the_run_record_on_this_machine() -> None:
    here, elsewhere = Bucket(url="file:///b", is_cluster_local=True), Bucket(url="gs://b", is_cluster_local=False)
    assert default_file(here, "digits", "digits") == Path("/b/digits/report.html")
    assert default_file(elsewhere, "digits", "digits") == Path("digits-report.html")


@needs_chromium
def test_browser_draws_the_curves_without_a_network(tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(page(job_report()), encoding="utf-8")
    drawn = draw(file.as_uri(), tmp_path)
    assert drawn.stdout.count("<polyline") == 3
    assert "Content Security Policy" not in drawn.stderr


@pytest.mark.parametrize(("is_dirty", "text"), [(True, "yes"), (False, "no")])
def test_page_shows_uncommitted_changes_as_yes_or_no(is_dirty: bool, text: str) -> None:
    row = f"<tr><th>uncommitted changes</th><td>{text}</td></tr>"
    assert row in page(job_report(record={**RECORD, "dirty": is_dirty}))
