"""The dashboard's JSON document of a stack, curves, and the metrics files that the dashboard reads."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands.dashboard import metrics
from commands.dashboard.document import CURVE_KEYS, STATES, JobMetrics, document, job_events
from commands.dashboard.metrics import Curves, EventFile, RankFiles, last_train_event, parse_lines
from commands.monitor.job_state import JobState
from commands.monitor.pod_state import PodState
from commands.report import event_of_line
from commands.run_times import CAUSES, RunTimes, seconds_per_unit, speeds
from tests.commands.dashboard_state import EVENTS, NOW, START_TIME, event, job_of, node, observed, pod, stamp, train


def test_document_has_states_steps_and_speeds_of_all_ranks() -> None:
    job = job_of(document(observed()))
    assert [STATES[each] for each in job["hosts"]["states"]] == ["running"] * 4
    assert job["steps"] == [639] * 4
    assert job["speeds"][:3] == pytest.approx([1, 1, 1], abs=0.01)
    assert job["speeds"][3] == pytest.approx(0.52, abs=0.01)
    assert json.loads(json.dumps(job)) == job


def test_document_lists_stragglers_and_reasons_for_waiting() -> None:
    found = document(observed())
    assert [each[:2] for each in job_of(found)["attention"]] == [["rank 3", "straggler"]]
    assert job_of(found, "nightly")["attention"][0] == ["rank 0", "problem", "Unschedulable: no node has a free GPU"]


def test_document_ignores_straggler_event_without_values() -> None:
    known = JobMetrics(curves=Curves(CURVE_KEYS), times=RunTimes(), events=[event("straggler", 880, slow_rank="x")])
    job = job_of(document(observed(metrics={"digits": known})))
    assert "straggler" not in [kind for _, kind, _ in [*job["attention"], *job["events"]]]


def test_document_counts_hosts_with_the_same_problem_together() -> None:
    pods = [pod(index, state="pending", node="", reason="Unschedulable") for index in range(4)]
    attention = job_of(document(observed(pods=pods, metrics={})))["attention"]
    assert attention == [["rank 0 and 3 more", "problem", "Unschedulable"]]


def test_document_shows_hosts_without_pods_and_deleted_nodes() -> None:
    found = document(observed(pods=[pod(0, node="gone-1")]))
    job = job_of(found)
    assert [STATES[each] for each in job["hosts"]["states"]] == ["running", "none", "none", "none"]
    assert job["hosts"]["nodes"] == [-1, -1, -1, -1]
    assert "gone-1 no longer exists" in job["attention"][0][2]


def test_document_without_permission_for_nodes_reports_the_problem() -> None:
    found = document(observed(nodes=[], nodes_problem="you have no permission"))
    assert (found["nodes"], found["nodes_problem"]) == ([], "you have no permission")
    assert [each[1] for each in job_of(found)["attention"]] == ["straggler"]


def test_document_lists_nodes_with_pool_state_and_pods() -> None:
    nodes = document(observed())["nodes"]
    assert nodes[0] == ["gpus-0", "gpus", "g2-standard-8", 0, "", [[0, "0"]]]
    assert nodes[2][5] == []
    assert nodes[6][3] == 2
    assert "has not answered since" in nodes[6][4]


def test_document_of_a_cordoned_node_shows_it_closed_to_new_pods() -> None:
    closed = node(0) | {"spec": {"unschedulable": True}}
    assert document(observed(nodes=[closed]))["nodes"][0][3:5] == [1, "ready, closed to new pods"]


def test_document_cost_covers_the_time_that_a_job_ran() -> None:
    found = document(observed())
    assert job_of(found)["usd"] == pytest.approx(3.41 * 900 / 3600, abs=0.001)
    assert job_of(found, "nightly")["usd"] is None
    assert (found["usd"], found["usd_per_hour"]) == (0.85, 5.62)
    jobs = observed().jobs
    finished = replace(jobs["digits"], state="complete", finished=stamp(360))
    assert document(observed(jobs={"digits": finished}))["usd"] == 0.34
    assert document(observed(records={}))["usd"] is None


def test_events_have_preemptions_restarts_and_checkpoints_in_order() -> None:
    found = job_of(document(observed()))["events"]
    kinds = ["checkpoint", "preemption", "restart", "restart", "checkpoint", "straggler"]
    assert [kind for _, kind, _ in found] == kinds
    assert found[1] == [START_TIME + 351, "preemption", found[1][2]]
    assert found[1][2].startswith("rank 2: exit code 75")
    assert found[2][2] == "1 host replaced"


def test_job_events_of_hosts_that_fail_together_are_one_event() -> None:
    failed = [
        pod(index, uid=f"a{index}", state="failed", reason="Error", exit_code=1, finished=stamp(100 + index))
        for index in range(3)
    ]
    later = pod(0, uid="b0", state="failed", reason="Error", exit_code=1, finished=stamp(400), created=stamp(200))
    found = job_events([*failed, later], [later], [])
    assert [(each[0] - START_TIME, each[1]) for each in found] == [(100, "failure"), (200, "restart"), (400, "failure")]
    assert found[0][2].startswith("rank 0 and 2 more hosts: exit code 1")


def test_host_that_ends_after_the_failure_of_a_peer_is_not_a_preemption() -> None:
    failed = {"state": "failed", "reason": "Error"}
    peer = pod(1, uid="a1", exit_code=1, finished=stamp(100), **failed)
    follower = pod(0, uid="a0", exit_code=75, finished=stamp(104), **failed)
    later = pod(2, uid="a2", exit_code=75, finished=stamp(300), **failed)
    found = job_events([peer, follower, later], [peer, follower, later], [])
    assert [(each[0] - START_TIME, each[1]) for each in found] == [
        (100, "failure"),
        (104, "failure"),
        (300, "preemption"),
    ]
    assert found[1][2] == "rank 0: ended because another host failed"


def test_document_goodput_and_spans_cover_the_time_until_now() -> None:
    job = job_of(document(observed()))
    assert job["goodput"] == pytest.approx(100 * job["seconds"]["training"] / 900, abs=0.1)
    assert sum(job["seconds"].values()) == pytest.approx(900, abs=1)
    assert job["spans"][-1][1] == NOW
    assert "lost" in {CAUSES[cause] for _, _, cause in job["spans"]}


@pytest.mark.parametrize(("state", "seconds"), [("running", {}), ("complete", {}), ("pending", {"waiting": 900})])
def test_job_without_events_has_waiting_time_only_while_pending(state: str, seconds: dict[str, float]) -> None:
    empty = JobMetrics(curves=Curves(CURVE_KEYS), times=RunTimes(START_TIME))
    jobs = {"digits": replace(observed().jobs["digits"], state=state)}
    job = job_of(document(observed(jobs=jobs, metrics={"digits": empty})))
    assert (job["seconds"], bool(job["spans"])) == (seconds, bool(seconds))


def test_charts_have_points_of_each_curve_and_marks_of_resumes() -> None:
    job = job_of(document(observed()))
    charts = {each["title"]: each for each in job["charts"]}
    assert [line["name"] for line in charts["Loss"]["lines"]] == ["training", "test"]
    assert [line for each in charts.values() for line in each["lines"] if not line["points"]] == []
    steps = charts["Loss"]["lines"][0]["points"][::2]
    assert steps == sorted(set(steps))
    assert job["resumed"] == [200]


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ("pending", "no pod yet"),
        ("running", "no pod yet"),
        ("failed", "no pod: Kubernetes deletes the pods that still run when a job fails"),
        ("suspended", "no pod: the job is stopped"),
    ],
)
def test_document_says_why_a_host_has_no_pod(state: str, text: str) -> None:
    job = replace(observed().jobs["digits"], state=state)
    assert job_of(document(observed(jobs={"digits": job}, pods=[])))["no_pod"] == text


@pytest.mark.parametrize(
    ("state", "pods", "text"),
    [
        ("failed", [pod(1, runs_script=True)], "the log of rank 0 was deleted with its pod"),
        ("suspended", [pod(1, runs_script=True)], "the log of rank 0 was deleted with its pod"),
        ("failed", [pod(0, runs_script=True)], "prints a line such as `train step=12/400 loss=0.35`"),
        ("running", [pod(1, runs_script=True)], "prints a line such as `train step=12/400 loss=0.35`"),
        ("running", [pod(0)], "The job has reported no step."),
    ],
)
def test_document_says_why_a_job_has_no_curves(state: str, pods: list[PodState], text: str) -> None:
    job = replace(observed().jobs["digits"], state=state)
    found = job_of(document(observed(jobs={"digits": job}, pods=pods, metrics={})))
    assert text in found["no_charts"]
    assert ("docs/bring-your-own-script.md" in found["no_charts"]) == pods[0].runs_script


def test_absent_job_has_no_ranks_and_no_cost() -> None:
    job = JobState(name="digits", kind="", state="absent")
    found = document(observed(jobs={"digits": job}, metrics={}, pods=[]))["jobs"][0]
    assert (found["ranks"], found["usd"], found["charts"], found["events"]) == (0, None, [], [])


def test_seconds_per_unit_exclude_the_wait_for_other_ranks() -> None:
    assert seconds_per_unit({"rate": 100.0, "all_reduce": 50.0}) == 0.005
    assert seconds_per_unit({"rate": 100.0}) == 0.01
    assert seconds_per_unit({"rate": 0.0}) is None
    assert seconds_per_unit({"rate": 10.0, "all_reduce": 100.0}) == 0.1, "an impossible share must be ignored"


def test_speeds_are_ratios_to_the_median_of_the_ranks_with_a_rate() -> None:
    assert speeds({0: {"rate": 10.0}, 1: {"rate": 10.0}, 2: {"rate": 5.0}, 3: {}}) == {0: 1.0, 1: 1.0, 2: 0.5}
    assert speeds({}) == {}


LOSS = [("train", "loss")]
"""Curve of the training loss, by event and key."""


def loss_events(first: int, last: int, value: float = 1.0) -> list[dict[str, Any]]:
    """Return `train` events of the steps from `first` to `last` - 1, each with the same loss."""
    return [event("train", step, global_step=step, loss=value) for step in range(first, last)]


def test_curve_of_a_million_steps_keeps_every_spike_in_at_most_two_points_a_column() -> None:
    curves = Curves(LOSS, columns=100)
    spikes = set()
    for first in range(0, 1_000_000, 50_000):
        events = loss_events(first, first + 50_000)[::50]
        events[7]["loss"] = 9.0 + first
        spikes.add(9.0 + first)
        curves.add(events)
    points = curves.points("train", "loss")
    assert len(points) <= 200
    assert spikes <= {value for _, value in points}
    assert points == sorted(points)


def test_curve_skips_missing_and_non_finite_values() -> None:
    curves = Curves(LOSS)
    values = (1.0, None, math.nan, math.inf, 2.0)
    curves.add([event("train", step, global_step=step, loss=value) for step, value in enumerate(values)])
    curves.add(
        [event("train", 9, global_step=9), event("test", 9, global_step=9, loss=5.0), event("train", 9, loss=3.0)]
    )
    assert curves.points("train", "loss") == [(0, 1.0), (4, 2.0)]


@pytest.mark.parametrize("is_one_chunk", [True, False])
def test_curve_of_repeated_steps_has_the_values_of_the_later_run(is_one_chunk: bool) -> None:
    curves, first, again = Curves(LOSS), loss_events(0, 100, 5.0), loss_events(50, 80, 2.0)
    for chunk in [[*first, *again]] if is_one_chunk else [first, again]:
        curves.add(chunk)
    points = curves.points("train", "loss")
    assert (points[0], points[-1]) == ((0, 5.0), (79, 2.0))
    assert max(step for step, value in points if value == 5.0) == 49


def test_event_file_continues_where_it_stopped(tmp_path: Path) -> None:
    path, texts = tmp_path / "rank-0.jsonl", [json.dumps(each) for each in EVENTS[:3]]
    file = EventFile(path)
    assert list(file.read()) == []
    path.write_text(f"{texts[0]}\n{texts[1][:20]}", encoding="utf-8")
    assert list(file.read()) == [[EVENTS[0]]]
    with path.open("a", encoding="utf-8") as opened:
        opened.write(f"{texts[1][20:]}\n")
    assert list(file.read()) == [[EVENTS[1]]]
    with path.open("a", encoding="utf-8") as opened:
        opened.write("not an event\n")
    assert list(file.read()) == []


def test_event_file_that_was_replaced_is_read_again_after_an_empty_list(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.jsonl"
    path.write_text("".join(f"{json.dumps(each)}\n" for each in EVENTS[:5]), encoding="utf-8")
    file = EventFile(path)
    assert [len(each) for each in file.read()] == [5]
    path.write_text(f"{json.dumps(EVENTS[0])}\n", encoding="utf-8")
    assert list(file.read()) == [[], [EVENTS[0]]]


def test_event_file_reads_a_large_file_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, text = tmp_path / "rank-0.jsonl", f"{json.dumps(EVENTS[0])}\n"
    path.write_text(text * 10, encoding="utf-8")
    monkeypatch.setattr(metrics, "CHUNK_BYTES", 3 * len(text))
    file = EventFile(path)
    assert [len(each) for each in file.read(math.inf)] == [3, 3, 3, 1]
    assert list(EventFile(path).read(0)) == []


def test_event_file_reads_a_line_longer_than_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, text = tmp_path / "rank-0.jsonl", json.dumps(EVENTS[0])
    path.write_text(f"{text}\n{text}\n{text}", encoding="utf-8")
    monkeypatch.setattr(metrics, "CHUNK_BYTES", len(text) // 2)
    assert list(EventFile(path).read(math.inf)) == [[EVENTS[0]], [EVENTS[0]]]


def test_parse_lines_skips_truncated_and_foreign_lines() -> None:
    text = json.dumps(EVENTS[0]).encode()
    assert parse_lines(b"\n".join([text, b'{"event": "tra', b"[1]", b"", b'{"time": 3}', text])) == [EVENTS[0]] * 2
    assert parse_lines(b"") == []


def test_last_train_event_skips_later_events_and_a_truncated_line(tmp_path: Path) -> None:
    path = tmp_path / "rank-3.jsonl"
    assert last_train_event(path) is None
    later = [train(1, 1), train(2, 2), event("test", 3, loss=1.0, text="x" * 500)]
    path.write_text("".join(f"{json.dumps(each)}\n" for each in later) + '{"event": "train", "ti', encoding="utf-8")
    assert last_train_event(path) == train(2, 2)


def test_rank_files_of_many_ranks_are_read_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "RANKS_PER_REFRESH", 2)
    for rank in range(5):
        (tmp_path / f"rank-{rank}.jsonl").write_text(json.dumps(train(1, 1, rank=rank)) + "\n", encoding="utf-8")
    files, seen = RankFiles(tmp_path), []
    for _ in range(3):
        files.update(5)
        seen.append(sorted(files.latest))
    assert seen == [[0, 1], [0, 1, 2, 3], [0, 1, 2, 3, 4]]
    assert set(files.latest[4]) == {"global_step", "rate", "all_reduce"}
    files.update(2)
    assert sorted(files.latest) == [0, 1]


def test_job_events_of_log_lines_leave_out_missing_values() -> None:
    lines = [
        "checkpoint step=2200",
        "checkpoint path=x",
        "restart number=1 failed_rank=1 exit_code=-9",
        "resume path=x",
        "resume global_step=40",
    ]
    events = [found for second, line in enumerate(lines) if (found := event_of_line(stamp(second), line))]
    assert [text for _, _, text in job_events([], [], events)] == [
        "checkpoint of step 2200 saved",
        "checkpoint saved",
        "rank 1 ended with exit code -9",
        "resumed",
        "resumed from step 40",
    ]
