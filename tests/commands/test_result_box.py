"""Box at the end of a job: rows, width, cost, newest checkpoint, and commands that the command line accepts."""

from __future__ import annotations

import io
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands import cli
from commands.bucket import Bucket
from commands.job_results import JobResult, checkpoint_text, cost_text, job_result, next_commands, show_box
from commands.monitor.job_state import JobState
from infra.make_command import COMMAND_VARIABLE
from stack.config import parse
from tests.commands.pull_requests import STACK
from tests.terminal import Terminal
from tests.unit.stack_settings import CLUSTER, JOB, KUBECONFIG

COMPLETE = JobState(
    name="digits", kind="indexed-job", state="complete", started="2026-11-21T10:00:00Z", finished="2026-11-21T10:01:47Z"
)
FAILED = replace(COMPLETE, state="failed", reason="BackoffLimitExceeded")
END = JobResult(
    job=COMPLETE,
    result="test accuracy 99.30 % (best 99.30 %)",
    checkpoint="~/bucket/checkpoints/digits/step-000000504",
    cost="nothing: it ran on this machine",
)
LOCAL = parse({"platform": {"kind": "local"}, "jobs": [{"name": "digits", "recipe": "digits"}]})


@pytest.fixture(autouse=True)
def _default_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset the variables that change the commands in messages."""
    monkeypatch.delenv(COMMAND_VARIABLE, raising=False)
    monkeypatch.delenv("STACK", raising=False)


def box(out: io.StringIO, *results: JobResult) -> list[str]:
    """Return the lines of the box for these results, after a command of 130 seconds."""
    show_box(results, 130.0, out)
    return out.getvalue().splitlines()


def test_box_without_a_terminal_has_plain_rows() -> None:
    assert box(io.StringIO(), END) == [
        "",
        "digits      complete after 1 min 47 s",
        "result      test accuracy 99.30 % (best 99.30 %)",
        "checkpoint  ~/bucket/checkpoints/digits/step-000000504",
        "cost        nothing: it ran on this machine",
        "command     took 2 min 10 s",
        "next        make report JOB=digits  write a page with its curves",
        "            make fetch JOB=digits   copy checkpoint and metrics here",
        "            make down               remove the stack",
    ]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_box_on_a_terminal_has_a_frame_that_fits(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    _, top, *rows, bottom = box(Terminal(), END)
    assert (top[0], bottom[0]) == ("╭", "╰")
    assert {row[:2] for row in rows} == {"│ "}
    assert max(map(len, (top, *rows, bottom))) < width


@pytest.mark.parametrize("width", [80, 100])
def test_box_with_a_long_path_and_reason_breaks_lines_at_spaces(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    path = f"~/{'long-folder-name/' * 6}step-504"[: width - 4]
    reason = "PodFailurePolicy: pod digits-0-abcde failed with exit code 1, after which the job does not restart " * 2
    failed = replace(COMPLETE, state="failed", reason=reason.strip())
    lines = box(Terminal(), replace(END, job=failed, checkpoint=path))
    assert max(map(len, lines)) < width
    assert f"│ {path}" in lines, "a path must stay on one line"
    words = " ".join(line.removeprefix("│ ") for line in lines).split()
    assert [word for word in reason.split() if word not in words] == []
    assert lines[lines.index(f"│ {path}") - 1] == "│ checkpoint"


def test_box_on_a_narrow_terminal_has_commands_without_purposes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = box(Terminal(), END)
    assert "│             make fetch JOB=digits" in lines
    assert max(map(len, lines)) < 60


def test_box_of_several_jobs_has_all_results_and_commands_for_the_failed_job() -> None:
    other = replace(END, job=replace(FAILED, name="other"), result="")
    lines = box(io.StringIO(), END, other)
    assert "other       failed after 1 min 47 s: BackoffLimitExceeded" in lines
    assert [line[12:].split("  ")[0] for line in lines[-3:]] == [
        "make logs JOB=other",
        "make rerun JOB=other",
        "make down",
    ]


@pytest.mark.parametrize("program", ["", "trainyard"])
@pytest.mark.parametrize(
    "result", [END, replace(END, is_script=True), replace(END, job=FAILED)], ids=["complete", "script", "failed"]
)
def test_next_commands_are_three_that_the_command_line_accepts(
    result: JobResult, program: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COMMAND_VARIABLE, program)
    monkeypatch.setenv("STACK", "dev")
    found = next_commands([result])
    assert len(found) == 3
    assert shlex.split(found[0][0])[1] == ("logs" if result.job is FAILED else "report")
    for command, _ in found:
        first, target, *words = shlex.split(command)
        assert first == (program or "make")
        if program:
            cli.cli.commands[target].make_context(target, words)
        else:
            assert target in cli.cli.commands
            assert "STACK=dev" in words


def test_next_commands_without_access_to_the_bucket_have_no_fetch() -> None:
    assert [command.split()[1] for command, _ in next_commands([replace(END, can_fetch=False)])] == ["report", "down"]


def test_cost_of_a_job_on_this_machine_is_nothing() -> None:
    assert cost_text(LOCAL, None) == "nothing: it ran on this machine"


def test_cost_of_a_job_in_a_cloud_has_the_prices_of_job_and_stack() -> None:
    text = cost_text(parse(STACK), 1.359)
    assert text.startswith("about $1.36 for its hosts; the stack costs up to $")
    assert text.endswith(" an hour until you remove it")
    assert cost_text(parse(STACK), None).startswith("unknown: its hosts have no known price; the stack costs")


def test_cost_of_a_job_on_an_existing_cluster_is_unknown() -> None:
    platform = {**CLUSTER, "kubeconfig": str(KUBECONFIG)}
    assert cost_text(parse({"platform": platform, "jobs": []}), None) == "unknown: the cluster is not Trainyard's"


def test_checkpoint_text_has_the_newest_complete_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    bucket = Bucket(url=f"file://{tmp_path}/bucket", is_cluster_local=True)
    assert checkpoint_text(bucket, "checkpoints/digits") == "none was saved"
    for step, file in ((1, "checkpoint.json"), (2, "checkpoint.json"), (3, "tensors")):
        folder = tmp_path / "bucket" / "checkpoints" / "digits" / f"step-00000000{step}"
        folder.mkdir(parents=True)
        (folder / file).touch()
    assert checkpoint_text(bucket, "checkpoints/digits") == "~/bucket/checkpoints/digits/step-000000002"


def test_checkpoint_text_of_a_cloud_is_the_folder_of_the_bucket() -> None:
    bucket = Bucket(url="gs://mine", is_cluster_local=False)
    assert checkpoint_text(bucket, "checkpoints/digits") == "gs://mine/checkpoints/digits"


@pytest.mark.parametrize(
    ("job", "is_script"),
    [(JOB, False), ({"name": "digits", "image": "example.com/a:1", "script": "/a.py"}, True)],
    ids=["recipe", "script"],
)
def test_job_result_has_result_and_kind_of_program(job: dict[str, Any], is_script: bool, tmp_path: Path) -> None:
    config = parse({"platform": {**CLUSTER, "kubeconfig": str(KUBECONFIG)}, "jobs": [job]})
    record = {"checkpoints": "checkpoints/digits", "usd": None}
    found = job_result(COMPLETE, "loss 0.5", config, {"bucket_url": f"file://{tmp_path}"}, record)
    assert found.is_script == is_script
    assert dict(found.rows())["result"] == "loss 0.5"
