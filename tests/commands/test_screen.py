"""Output for users: lines of many ranks, JSON, live lines, status tables, and summaries with advice."""

from __future__ import annotations

import io
import json
import subprocess
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from commands.monitor.cluster import StackOutputs, UnknownStack
from commands.monitor.job_state import JobState, job_state
from commands.monitor.logs import Progress
from commands.monitor.pod_state import pod_state
from commands.monitor.screen import (
    Detail,
    JsonScreen,
    Screen,
    describe,
    describe_many,
    first_fields,
    readable_fields,
    result_text,
    summary,
)
from commands.status import COLUMNS, Snapshot, job_rows, print_snapshot, read_snapshot, render, with_status
from infra.local.settings import stack_cluster
from tests.commands.test_logs import TORCHRUN
from tests.commands.test_pod_state import API, pod
from tests.terminal import Terminal

FIRST, SECOND = (replace(pod_state(each), state="running") for each in API["pods"]["complete"])
"""Running hosts 0 and 1 of the job `ok`."""
FAILED = replace(pod_state(pod("failed")), job="digits", exit_code=1, processes=2, runs_script=False)
"""Failed host 0 of the job `digits`, which runs the trainer with two ranks on each host."""


def screen_lines(
    lines: list[str], ranks: int, only_rank: int | None = None, detail: Detail = Detail.LINES
) -> list[str]:
    """Return what the screen shows of these lines if both hosts print them, one host after the other."""
    out = io.StringIO()
    screen = Screen(out, only_rank=only_rank, detail=detail)
    for host in (FIRST, SECOND):
        for line in lines:
            screen.line(host, line, ranks)
    return out.getvalue().splitlines()


def test_screen_single_rank_has_no_prefix_and_does_not_wrap() -> None:
    line = "train " + " ".join(f"key{number}={number}" for number in range(100))
    out = io.StringIO()
    Screen(out).line(FIRST, line, 1)
    assert out.getvalue() == line + "\n"


def test_json_screen_prints_one_object_per_line_and_notes_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    out = io.StringIO()
    screen = JsonScreen(out)
    with screen.live():
        screen.note("waiting")
        screen.line(FIRST, "train rank=3/8 step=5/9 loss=0.25", 8)
        screen.line(SECOND, "some text", 8)
    event, text = map(json.loads, out.getvalue().splitlines())
    assert (event["job"], event["event"], event["rank"], event["fields"]["loss"]) == ("ok", "train", 3, "0.25")
    assert text == {"job": "ok", "host": SECOND.label, "text": "some text"}
    assert "waiting" in capsys.readouterr().err


def test_json_screen_of_one_rank_omits_other_ranks() -> None:
    out = io.StringIO()
    screen = JsonScreen(out, only_rank=1)
    for host in (FIRST, SECOND):
        screen.line(host, "text of its host", 2)
        screen.line(host, "train rank=0/2 step=5/9", 2)
    assert [json.loads(line)["text"] for line in out.getvalue().splitlines()] == ["text of its host"]


def test_command_with_json_prints_only_the_status_to_stdout(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STACK", "dev")
    monkeypatch.setattr("commands.status.read_snapshot", lambda: "it is not up")

    def command() -> int:
        print("from Python", flush=True)
        subprocess.run(["git", "--version"], check=True)
        return 3

    assert with_status(command, as_json=True) == 3
    printed = capfd.readouterr()
    assert json.loads(printed.out) == {"stack": "dev", "up": False, "problem": "it is not up"}
    assert "from Python" in printed.err
    assert "git version" in printed.err
    assert with_status(command, as_json=False) == 3
    assert "from Python" in capfd.readouterr().out


def test_down_with_json_has_no_problem_after_its_success(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STACK", "dev")
    monkeypatch.setattr("commands.status.read_snapshot", lambda: "stack dev is not up; run `make up STACK=dev`")
    states = []
    for status in (0, 1):
        assert with_status(partial(int, status), as_json=True, removes_stack=True) == status
        states.append(json.loads(capsys.readouterr().out))
    assert states[0] == {"stack": "dev", "up": False}
    assert states[1]["problem"] == "stack dev is not up; run `make up STACK=dev`"


def test_status_after_the_removal_of_the_cluster_says_that_the_stack_is_partly_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kubeconfig = str(stack_cluster("/checkout", "local").kubeconfig)
    found = StackOutputs(kubeconfig_path=kubeconfig, namespace="training", jobs=("digits",))
    monkeypatch.setattr("commands.status.stack_outputs", lambda: found)
    assert read_snapshot() == (
        "the stack is partly down: its cluster was removed; `make down` removes the rest, `make up` starts it again"
    )


def test_screen_two_ranks_show_all_lines_with_prefix() -> None:
    assert screen_lines(["[bold]text[/bold] :smile:"], 2) == [
        "ok/0 | [bold]text[/bold] :smile:",
        "ok/1 | [bold]text[/bold] :smile:",
    ]


def test_screen_many_ranks_show_all_lines_of_the_first_and_key_lines_of_others() -> None:
    lines = ["noise", "start host=x", "train step=1", "RuntimeError: lost"]
    assert screen_lines(lines, 8) == [
        *(f"ok/0 | {line}" for line in lines),
        "ok/1 | start host=x",
        "ok/1 | RuntimeError: lost",
    ]


def test_screen_only_rank_shows_lines_of_that_rank() -> None:
    assert screen_lines(["noise", "train step=1 rank=0/2", "train step=1 rank=1/2"], 2, only_rank=1) == [
        "ok/1 | train step=1 rank=1/2",
        "ok/1 | noise",
        "ok/1 | train step=1 rank=1/2",
    ]


TRAIN = "train epoch=1 step=1/9 loss=0.5 rate=10.0 global_rate=20.0 data_wait=1.0 memory_mib=300 rank={}/2 host=x"


def test_screen_readable_shows_rank_0_with_main_fields_and_errors_of_others() -> None:
    lines = ["noise", TRAIN.format(0), TRAIN.format(1), "RuntimeError: lost", "restart number=1 failed_rank=1"]
    assert screen_lines(lines, 2, detail=Detail.READABLE) == [
        "ok/0 | noise",
        "ok/0 | train epoch=1 step=1/9 loss=0.5 global_rate=20.0",
        "ok/0 | RuntimeError: lost",
        "ok/0 | restart number=1 failed_rank=1",
        # The second host prints the same lines. The prefix of an event is its rank.
        "ok/0 | train epoch=1 step=1/9 loss=0.5 global_rate=20.0",
        "ok/1 | RuntimeError: lost",
        "ok/1 | restart number=1 failed_rank=1",
    ]


def test_screen_readable_hides_the_frames_of_a_cpp_stack() -> None:
    warning = "[W1127 10:00:00.1 TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=3)"
    raised = "Exception raised from recvBytes at /pytorch/torch/csrc/distributed/c10d/Utils.hpp:678:"
    lines = [warning, raised, "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x80 (0x7f)"]
    assert screen_lines(lines, 1, only_rank=0, detail=Detail.READABLE) == [warning]
    assert screen_lines(lines, 1, only_rank=0, detail=Detail.ALL) == lines


def test_screen_all_shows_every_rank_of_many_with_all_fields() -> None:
    lines = ["noise", TRAIN.format(1)]
    assert screen_lines(lines, 8, detail=Detail.ALL) == [
        "ok/0 | noise",
        f"ok/1 | {TRAIN.format(1)}",
        "ok/1 | noise",
        f"ok/1 | {TRAIN.format(1)}",
    ]


def test_readable_fields_keep_unknown_fields_and_the_only_rate() -> None:
    assert readable_fields("train step=1 loss=0.5 rate=3 mine=7 time=10:00:00") == "train step=1 loss=0.5 rate=3 mine=7"


@pytest.mark.parametrize("detail", [Detail.READABLE, Detail.LINES])
@pytest.mark.parametrize("width", [80, 100, 120])
def test_screen_on_a_terminal_cuts_events_to_its_width(
    width: int, detail: Detail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    text = "test " + " ".join(f"measure_{number}={number}" for number in range(30))
    Screen(out, detail=detail).line(FIRST, text, 2)
    (line,) = out.lines
    assert width - len("measure_00=0") <= len(line) <= width


def test_screen_readable_on_a_terminal_has_the_last_step_of_an_epoch_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    out = Terminal()
    screen = Screen(out, detail=Detail.READABLE)
    with screen.live():
        screen.set_live_lines(["digits  epoch 1/8", "other  epoch 2/8"])
        for step in (1, 5, 9):
            screen.line(FIRST, f"train epoch=1 step={step}/9 loss=0.{step} rank=0/2", 2)
        screen.line(FIRST, "train loss=0.25", 2)
    text = out.getvalue()
    assert "digits  epoch 1/8" in text
    assert [step for step in (1, 5, 9) if f"step={step}/9" in text] == [9]
    assert "train loss=0.25" in text


def test_live_line_without_a_terminal_is_not_shown() -> None:
    out = io.StringIO()
    screen = Screen(out, detail=Detail.READABLE)
    with screen.live():
        screen.set_live_lines(["digits  epoch 1/8"])
        screen.line(FIRST, "train epoch=1 step=1/9 loss=0.5", 1)
    assert out.getvalue() == "train epoch=1 step=1/9 loss=0.5\n"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("done test_accuracy=98.61 best_accuracy=98.70 rank=0/1", "test accuracy 98.61 % (best 98.70 %)"),
        ("done test_bits_per_byte=1.93 best_bits_per_byte=1.90", "test 1.93 bits per byte (best 1.90)"),
        ("train step=9/9 loss=0.25", "loss 0.25"),
        ("start host=x", ""),
    ],
)
def test_result_text_has_the_measure_of_the_recipe_or_the_loss(line: str, expected: str) -> None:
    progress = Progress()
    progress.read(line)
    assert result_text(progress) == expected


def test_screen_plain_stream_strips_colour_codes() -> None:
    assert screen_lines(["\x1b[31mred\x1b[0m"], 1) == ["red", "red"]


def test_describe_pod_has_state_node_and_restarts() -> None:
    assert describe(pod_state(pod("unschedulable")), 0).startswith("big/0 pending: Unschedulable: 0/2 nodes")
    assert describe(FIRST, 2) == "ok/0 running on follow-1 (restart 2)"
    assert describe_many("ok", [FIRST, SECOND, FAILED]).startswith("ok: 1 failed (exit code 1")


def test_summary_complete_job_has_accuracy_duration_and_restarts() -> None:
    progress = Progress()
    progress.read("done test_accuracy=98.61 best_accuracy=98.70 epochs=5 seconds=71.2 rank=0/2")
    job = job_state(API["jobs"]["complete"])
    (line,) = summary(job, [FIRST, SECOND], progress, {})
    assert line == "ok: complete after 5 s; test accuracy 98.61 % (best 98.70 %); restarts 0"


def test_summary_of_a_resumed_job_counts_since_its_last_start() -> None:
    resumed = deepcopy(API["jobs"]["complete"])
    resumed["status"]["conditions"].append({"type": "Suspended", "status": "False", "reason": "JobResumed"})
    (line,) = summary(job_state(resumed), [FIRST, SECOND], None, {})
    assert line == "ok: complete 5 s after its last start; restarts 0 since its last start"


def test_summary_complete_job_counts_restarts_in_place() -> None:
    progress = Progress()
    progress.read("restart number=2 counted=2/3 failed_rank=1 exit_code=-9")
    (line,) = summary(job_state(API["jobs"]["complete"]), [FIRST, SECOND], progress, {})
    assert line == "ok: complete after 5 s; restarts 2"


def test_describe_backoff_is_shown_only_until_the_job_is_over() -> None:
    waiting = replace(FAILED, has_backoff=True, finished="2026-01-01T00:00:00Z")
    assert describe(waiting, 0).endswith("Kubernetes replaces it at 00:00:10 UTC: 10 s after failure 1 of this host")
    assert "replaces" not in describe(waiting, 0, is_job_over=True)


def test_summary_failed_job_has_all_exit_codes_and_last_lines_of_the_failing_rank() -> None:
    job = job_state(API["jobs"]["failed"])
    lost = replace(FAILED, uid="other", index=1, finished="2000-01-01T00:00:00Z")
    tails = {FAILED.uid: TORCHRUN, lost.uid: ["RuntimeError: Connection closed by peer"]}
    text = "\n".join(summary(job, [FAILED, lost], None, tails))
    assert "reason: BackoffLimitExceeded" in text
    assert "digits/0 on follow-0: exit code -15: ended by SIGTERM" in text
    assert "digits/1 on follow-0: exit code 78: bad configuration" in text
    assert "last lines of digits/0-1:" in text
    assert "--epochs 'x': must be a number" in text
    assert "Connection closed" not in text
    assert "ChildFailedError" not in text


def test_summary_failed_job_does_not_show_a_host_that_another_host_ended() -> None:
    culprit = replace(FAILED, uid="culprit", index=1)
    ended = "error: another host ended the job: rank 1 ended with exit code 1; the job has no restart left"
    tails = {FAILED.uid: [ended], culprit.uid: ["no such file: labels.csv", "error: rank 1 ended with exit code 1"]}
    text = "\n".join(summary(job_state(API["jobs"]["failed"]), [FAILED, culprit], None, tails))
    assert "no such file: labels.csv" in text
    assert "another host ended the job" not in text


@pytest.mark.parametrize(
    "words", ["Sending process 36 closing signal SIGTERM", "Closing process 39 via signal SIGTERM"]
)
def test_readable_screen_hides_torchruns_warning_that_it_stops_a_process(words: str) -> None:
    place = "venv/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/api.py:1028"
    line = f"W1127 16:24:26.154000 1 {place}] {words}"
    assert screen_lines([line], 2, detail=Detail.READABLE) == []
    assert len(screen_lines([line], 2, detail=Detail.ALL)) == 2


def test_job_rows_running_job_has_step_rate_loss_and_accuracy() -> None:
    progress = Progress()
    progress.read("train epoch=2 step=40/125 loss=0.43 accuracy=86.2 rate=812.3 rank=0/2 global_step=165")
    job = job_state(API["jobs"]["running"])
    (row,) = job_rows(job, [pod_state(pod("running"))], {pod_state(pod("running")).uid: progress}, {})
    cells = dict(zip(COLUMNS, row, strict=True))
    assert cells["step"] == "40/125 of epoch 2"
    assert (cells["rate"], cells["loss"], cells["accuracy"]) == ("812.3", "0.43", "86.2")
    assert (cells["state"], cells["pod"], cells["node"], cells["reason"]) == ("running", "running", "follow-0", "")
    headers = [column.header for column in render([row]).columns]
    assert "step" in headers
    assert "reason" not in headers


@pytest.mark.parametrize("width", [80, 100, 120, 200])
def test_status_on_a_terminal_fits_its_width(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "dumb")
    progress = Progress()
    progress.read("train epoch=2 step=40/125 loss=0.43 accuracy=86.2 rate=812.3 rank=0/2 global_step=165")
    host = pod_state(pod("running"))
    job = job_state(API["jobs"]["running"])
    rows = job_rows(
        job, [host], {host.uid: progress}, {host.uid: "waits for a node that has not answered since 10:00:00 UTC"}
    )
    out = Terminal()
    print_snapshot(Snapshot(nodes=[("local-0 ready", True)], nodes_problem="", advice="", jobs=[job], rows=rows), out)
    lines = out.getvalue().splitlines()
    assert lines == [line.rstrip() for line in lines]
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for cell in ("40/125 of epoch 2", "0.43", "812.3", "running", "waits for a node that has not answered since"):
        assert cell in text


@pytest.mark.parametrize("is_terminal", [True, False])
def test_status_pads_no_row_to_the_longest_reason(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    reason = "waits for a node that has not answered since 10:00:00 UTC"
    rows = [("a", "indexed-job", "running", *[""] * 9, each) for each in ("", reason, "short")]
    out = Terminal() if is_terminal else io.StringIO()
    print_snapshot(Snapshot(nodes=[], nodes_problem="", advice="", jobs=[], rows=rows), out)
    lines = out.lines if isinstance(out, Terminal) else out.getvalue().splitlines()
    assert lines == [line.rstrip() for line in lines]
    assert f"a    indexed-job  running  {reason}" in lines


def test_status_indents_all_lines_of_a_reason_below_its_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    reason = "exit code 1: uncaught error, or another rank failed first; the log of this rank says which"
    rows = [("a", "indexed-job", "failed", "a-0", "0", *[""] * 7, reason)]
    out = Terminal()
    print_snapshot(Snapshot(nodes=[], nodes_problem="", advice="", jobs=[], rows=rows), out)
    below = [line for line in out.lines if line.startswith("  ")]
    assert " ".join(line[2:] for line in below) == f"0: {reason}"


def test_status_wraps_advice_between_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    advice = "free space on the disk of /home/someone/.cache/trainyard, then wait " * 3
    out = Terminal()
    print_snapshot(Snapshot(nodes=[], nodes_problem="", advice=advice.strip(), jobs=[], rows=[]), out)
    assert max(map(len, out.lines)) <= 80
    assert " ".join(" ".join(out.lines[1:-1]).split()) == advice.strip()


@pytest.mark.parametrize("width", [80, 100])
def test_note_on_a_terminal_breaks_between_words(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = "digits/0 failed on local-0: exit code 1: uncaught error, or another rank failed first; " * 2
    out = Terminal()
    Screen(out).note(text.strip(), "")
    assert max(map(len, out.lines)) <= width
    assert " ".join(out.lines) == text.strip()
    plain = io.StringIO()
    Screen(plain).note(text.strip())
    assert plain.getvalue() == f"{text.strip()}\n"


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (80, "train step=1 loss=0.5 rate=3"),
        (27, "train step=1 loss=0.5"),
        (21, "train step=1 loss=0.5"),
        (3, "train step=1 loss=0.5 rate=3"),
    ],
)
def test_first_fields_cuts_an_event_between_words(width: int, expected: str) -> None:
    assert first_fields("train step=1 loss=0.5 rate=3", width) == expected


def test_job_rows_restarted_host_has_failure_of_its_last_pod() -> None:
    now = pod_state(pod("running"))
    killed = replace(pod_state(pod("out_of_memory")), job=now.job, index=now.index, created="2000-01-01T00:00:00Z")
    (row,) = job_rows(job_state(API["jobs"]["running"]), [killed, now], {}, {})
    assert row[-1].startswith("restarted after exit code 137: out of memory: the container reached its limit of 40Mi")


def test_job_rows_ranks_restarted_in_place_have_exit_code_and_rank() -> None:
    now = replace(pod_state(pod("running")), memory_limit="2Gi", job="digits")
    progress = Progress()
    progress.read("restart number=1 counted=1/3 failed_rank=1 exit_code=-9")
    (row,) = job_rows(job_state(API["jobs"]["running"]), [now], {now.uid: progress}, {})
    assert row[-1] == (
        "restarted after rank 1 ended with exit code -9: ended by SIGKILL: the container reached its limit of 2Gi "
        "(raise `resources.memory` of job digits above 2Gi), or it was killed by hand"
    )


def test_job_rows_job_without_pods_has_reason_from_events() -> None:
    job = job_state(API["jobs"]["unschedulable"])
    (row,) = job_rows(job, [], {}, {job.uid: "FailedCreate: forbidden"})
    assert row[0] == "big"
    assert row[-1] == "FailedCreate: forbidden"


def test_json_of_a_command_on_an_unknown_stack_has_the_problem(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unknown() -> str:
        raise UnknownStack("Pulumi.nosuch.yaml does not exist")

    monkeypatch.setenv("STACK", "nosuch")
    monkeypatch.setattr("commands.status.read_snapshot", unknown)
    assert with_status(partial(int, 1), as_json=True) == 1
    shown = capsys.readouterr()
    assert shown.err == "", "only the command may print the problem"
    assert json.loads(shown.out)["problem"] == "Pulumi.nosuch.yaml does not exist"


@pytest.mark.parametrize(
    ("line", "is_advised"),
    [
        ("trainer: file:///b/ok: none of 2 checkpoints can be used; undo a change of the model", True),
        ("RuntimeError: Error(s) in loading state_dict for Net:", True),
        ("RuntimeError: out of memory", False),
    ],
)
def test_summary_of_a_job_whose_checkpoints_do_not_fit_suggests_a_fresh_start(line: str, is_advised: bool) -> None:
    failed = replace(FIRST, state="failed", exit_code=66)
    job = JobState(name="ok", kind="indexed-job", state="failed", hosts=1)
    text = "\n".join(summary(job, [failed], None, {failed.uid: [line]}))
    assert ("start from the beginning: `make rerun JOB=ok FRESH=1`" in text) == is_advised
