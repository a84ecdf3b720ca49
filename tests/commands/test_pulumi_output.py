"""Folded output of Pulumi: counts by kind, diagnostics, progress, log files, and incomplete event files."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from commands import pulumi_output
from commands.pulumi_output import EventLog, FoldedOutput, is_verbose, reported_errors
from tests.terminal import Terminal
from workloads.user_files import key_of

URN = "urn:pulumi:local::trainyard::trainyard:workloads:TrainingJob${}::{}"


def step(name: str, kind: str, operation: str = "create", event: str = "resOutputsEvent") -> dict[str, Any]:
    """Return an event about a resource."""
    return {event: {"metadata": {"op": operation, "urn": URN.format(kind, name), "type": kind}}}


def message(text: str, severity: str = "error", **more: Any) -> dict[str, Any]:
    """Return a diagnostic."""
    return {"diagnosticEvent": {"message": text, "severity": severity, "color": "raw", **more}}


def write_events(folder: Path, *events: dict[str, Any]) -> None:
    """Write the event file of an update by Pulumi."""
    (folder / "events.json").write_text("".join(f"{json.dumps(each)}\n" for each in events), encoding="utf-8")


@pytest.fixture(autouse=True)
def _logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the logs in the test's folder."""
    monkeypatch.setattr(pulumi_output, "STATE", tmp_path)


Show = Callable[..., list[str]]


@pytest.fixture
def show(tmp_path: Path) -> Show:
    """Return a function that returns the output about some events, without its first line and its last two lines."""

    def lines(*events: dict[str, Any], status: int = 0, log: str = "") -> list[str]:
        out = io.StringIO()
        with FoldedOutput("up", "local", tmp_path, out) as output:
            output.file.write(log)
            output.file.flush()
            write_events(tmp_path, *events)
            output.poll(False)
            output.end(status)
        first, *middle, end, place = out.getvalue().splitlines()
        assert first == "stack local: updating"
        assert end.startswith("stack local: updated after" if status == 0 else "stack local: not updated; stopped")
        assert place == f"  all output of Pulumi: {output.log}"
        return middle

    return lines


def test_folded_output_counts_resources_by_kind_without_components(show: Show) -> None:
    account = "kubernetes:core/v1:ServiceAccount"
    assert show(
        step("local", "pulumi:pulumi:Stack"),
        step("digits", "trainyard:workloads:TrainingJob"),
        *(step(name, account) for name in "abc"),
        step("job", "kubernetes:batch/v1:Job"),
        step("local-processes", "pulumi-python:dynamic:Resource"),
        step("old", account, "delete"),
        step("kept", account, "same"),
    ) == [
        "  created: 3 ServiceAccount, 1 Job, the cluster's processes",
        "  deleted: 1 ServiceAccount",
        "  unchanged: 1",
    ]


def test_folded_output_counts_a_replacement_once(show: Show) -> None:
    operations = ("create-replacement", "replace", "delete-replaced")
    job = "kubernetes:batch/v1:Job"
    assert show(*(step("digits-job", job, each) for each in operations)) == ["  replaced: 1 Job"]


def replaced_files(before: dict[str, str], after: dict[str, str]) -> dict[str, Any]:
    """Return an event about the replaced ConfigMap of job train, with its files before and after."""
    event = step("train-script", "kubernetes:core/v1:ConfigMap", "create-replacement")
    for side, files in (("old", before), ("new", after)):
        labels = {"trainyard.dev/job": "train"}
        inputs = {"kind": "ConfigMap", "data": files, "metadata": {"labels": labels}}
        event["resOutputsEvent"]["metadata"][side] = {"inputs": inputs}
    return event


def test_folded_output_names_the_changed_files_of_a_job_that_runs_again(show: Show) -> None:
    before = {"train.py": "1", "same.py": "1", "gone.json": "{}"}
    after = {"train.py": "2", "same.py": "1", "status.json": "{}"}
    assert show(replaced_files(before, after)) == [
        "  job train runs again, because its files have changed: gone.json, status.json, train.py",
        "  replaced: 1 ConfigMap",
    ]


def test_folded_output_names_changed_files_in_folders_by_their_path(
    show: Show, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scripts" / "inner").mkdir(parents=True)
    (tmp_path / "scripts" / "inner" / "more.py").touch()
    monkeypatch.setattr(pulumi_output, "PROJECT", tmp_path)
    line, _ = show(replaced_files({}, {key_of("inner/more.py"): "1", "train.py": ""}))
    assert line.endswith("changed: inner/more.py, train.py")


def test_folded_output_names_at_most_five_changed_files(show: Show) -> None:
    line, _ = show(replaced_files({}, {f"{number}.py": "" for number in range(9)}))
    assert line.endswith("changed: 0.py, 1.py, 2.py, 3.py, 4.py and 4 more")


def test_folded_output_of_a_configmap_with_the_same_files_names_none(show: Show) -> None:
    assert show(replaced_files({"train.py": "1"}, {"train.py": "1"})) == ["  replaced: 1 ConfigMap"]


def test_folded_output_of_a_failure_has_the_whole_diagnostic_without_colours(show: Show) -> None:
    pool = "gcp:container/nodePool:NodePool"
    assert show(
        step("gpus", pool, event="resourcePreEvent"),
        message("<{%reset%}>QUOTA_EXCEEDED:\n  4 T4<{%reset%}>\n", urn=URN.format(pool, "gpus")),
        step("gpus", pool, event="resOpFailedEvent"),
        message("update failed", urn="urn:pulumi:local::trainyard::pulumi:pulumi:Stack::trainyard-local"),
        status=255,
    ) == ["  NodePool gpus: error: QUOTA_EXCEEDED:", "    4 T4", "  failed: 1 NodePool"]


def test_folded_output_of_a_failure_keeps_its_errors(tmp_path: Path) -> None:
    with FoldedOutput("up", "local", tmp_path, io.StringIO()) as output:
        write_events(tmp_path, message("requirements: x: no such package"), message("a warning", severity="warning"))
        output.end(1)
    assert output.diagnostics == "requirements: x: no such package\n"


def test_folded_output_of_a_failure_without_a_diagnostic_has_the_end_of_the_log(show: Show) -> None:
    assert show(status=255, log="panic: lost\n") == ["  panic: lost"]


def test_folded_output_shows_warnings_and_prints_but_no_temporary_messages(show: Show) -> None:
    assert show(
        message("deprecated", "warning"),
        message("[1/2] Waiting", "info", ephemeral=True),
        message("local cluster: node local-0 is ready", "info#err"),
        message("trace", "debug"),
        message("using pulumi-language-python from $PATH at /opt/bin/pulumi-language-python", "warning"),
    ) == ["  warning: deprecated", "  local cluster: node local-0 is ready"]


def test_folded_output_omits_the_warning_about_unfinished_operations(show: Show) -> None:
    pending = (
        "Attempting to deploy or update resources with 1 pending operations from previous deployment.\n"
        "  * urn:pulumi:dev::slow::pulumi-python:dynamic:Resource::first, interrupted while creating\n"
        "These resources are in an unknown state because the Pulumi CLI was interrupted while waiting for changes to "
        "these resources to complete.\n"
    )
    assert show(message(pending, "warning", prefix="warning: "), message("deprecated", "warning")) == [
        "  warning: deprecated"
    ]


@pytest.mark.parametrize("severity", ["error", "info#err"])
def test_folded_output_of_a_failed_program_has_only_its_own_message(severity: str, show: Show) -> None:
    echo = message("an unhandled error occurred: program exited with non-zero exit code: 1\n", prefix="error: ")
    shown = "error: " if severity == "error" else ""
    assert show(message("disk: free space\n", severity), echo, status=1) == [f"  {shown}disk: free space"]


@pytest.mark.parametrize(
    ("before", "code"), [([], 1), ([message("deprecated", "warning")], 1), ([message("disk: free space")], 137)]
)
def test_folded_output_of_a_program_without_a_reason_shows_its_exit_code(
    before: list[dict[str, Any]], code: int, show: Show
) -> None:
    text = f"an unhandled error occurred: program exited with non-zero exit code: {code}"
    assert show(*before, message(text), status=1)[-1] == f"  error: {text}"


def test_folded_output_shows_broken_policy_rules(show: Show) -> None:
    event = {"policyName": "images-by-digest", "enforcementLevel": "mandatory", "message": "has a tag", "color": "raw"}
    assert show({"policyEvent": event}) == ["  images-by-digest (mandatory): has a tag"]


def test_folded_output_shows_and_logs_standard_error(tmp_path: Path) -> None:
    out = io.StringIO()
    with FoldedOutput("destroy", "local", tmp_path, out) as output:
        output.errors.write("\x1b[31merror: the stack is locked\x1b[0m\n")
        output.errors.write("warning: using pulumi-language-python from $PATH at /opt/bin/pulumi-language-python\n")
    assert "error: the stack is locked" in out.getvalue()
    assert "$PATH" not in out.getvalue()
    assert output.log.read_text(encoding="utf-8").startswith("error: the stack is locked\nwarning: using")


def test_folded_output_of_a_change_of_jobs_names_the_jobs(tmp_path: Path) -> None:
    out = io.StringIO()
    with FoldedOutput("destroy", "dev", tmp_path, out, changes_jobs=True) as output:
        output.end(0)
    begin, end, _ = out.getvalue().splitlines()
    assert begin == "the jobs of stack dev: destroying"
    assert end.startswith("the jobs of stack dev: destroyed after")


def test_folded_output_without_a_terminal_prints_running_operations_periodically(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pulumi_output, "PROGRESS_LINE_SECONDS", 0.0)
    out = io.StringIO()
    events = [
        step("gpus", "gcp:container/nodePool:NodePool", event="resourcePreEvent"),
        step("local-processes", "pulumi-python:dynamic:Resource", event="resourcePreEvent"),
    ]
    write_events(tmp_path, *events)
    with FoldedOutput("up", "dev", tmp_path, out) as output:
        output.poll(False)
        output.poll(True)
    assert out.getvalue().splitlines()[1:] == [
        "  updating, 0.0 s, 0 done: creating NodePool gpus (0.0 s), creating the cluster's processes (0.0 s)"
    ]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_folded_output_on_a_terminal_does_not_wrap(width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pulumi_output, "TICK_SECONDS", 0.0)
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    kinds = [f"kubernetes:core/v1:Kind{number}" for number in range(30)]
    events = [
        *(step("a-long-name", kind, event="resourcePreEvent") for kind in kinds),
        *(step("a", kind) for kind in kinds),
    ]
    write_events(tmp_path, *events)
    out = Terminal()
    with FoldedOutput("up", "dev", tmp_path, out) as output:
        output.poll(False)
        output.end(0)
    parts = [part for line in out.getvalue().splitlines() for part in line.replace("\033[K", "").split("\r")]
    assert max(len(part) for part in parts if str(tmp_path) not in part) < width
    assert [part for part in parts if re.search(r"\b1$", part)] == []
    assert any("creating Kind0 a-long-name" in part for part in parts)


@pytest.mark.parametrize("width", [80, 100])
def test_folded_output_on_a_terminal_breaks_diagnostics_between_words(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("TERM", "xterm")
    text = "error: requirements: the file's packages need numpy 1.26.4, but the image has another version of it " * 2
    write_events(tmp_path, message(text))
    out = Terminal()
    with FoldedOutput("up", "dev", tmp_path, out) as output:
        output.poll(False)
    lines = [line.replace("\033[K", "").replace("\r", "") for line in out.getvalue().splitlines()][1:-1]
    assert max(map(len, lines)) < width
    assert text.strip() in " ".join(" ".join(lines).split())


def test_event_log_yields_complete_lines_only(tmp_path: Path) -> None:
    path = tmp_path / "events.json"
    log = EventLog(path)
    assert list(log.read()) == []
    path.write_text('{"sequence": 1}\n{"sequ', encoding="utf-8")
    assert list(log.read()) == [{"sequence": 1}]
    path.write_text('{"sequence": 1}\n{"sequence": 2}\nno JSON\n', encoding="utf-8")
    assert list(log.read()) == [{"sequence": 2}]


def test_old_logs_of_a_stack_are_deleted(tmp_path: Path) -> None:
    folder = tmp_path / "logs" / "local"
    folder.mkdir(parents=True)
    for number in range(pulumi_output.MAX_LOGS + 5):
        (folder / f"20260101-0000{number:02d}-up.log").touch()
    with FoldedOutput("up", "local", tmp_path, io.StringIO()):
        pass
    kept = sorted(each.name for each in folder.iterdir())
    assert len(kept) == pulumi_output.MAX_LOGS
    assert kept[0] == "20260101-000006-up.log", "the oldest files must be deleted"


@pytest.mark.parametrize(("value", "expected"), [("", False), ("0", False), ("false", False), ("1", True)])
def test_is_verbose_reads_the_environment_variable(value: str, expected: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VERBOSE", value)
    assert is_verbose() is expected


def test_reported_errors_of_json_output_are_one_line_for_each_resource() -> None:
    urn = "urn:pulumi:dev::trainyard::pulumi:providers:gcp::default"
    diagnostics = [
        {"severity": "warning", "message": "warning: Will retry in 80ms\n"},
        {"severity": "error", "urn": urn, "message": "error: no credentials\n"},
        {"severity": "error", "urn": urn, "message": "<{%fg 1%}>error: <{%reset%}>no credentials\n"},
        {"severity": "error", "urn": "urn:pulumi:dev::trainyard::pulumi:pulumi:Stack::dev", "message": "update failed"},
    ]
    output = "Previewing\n" + json.dumps({"steps": [], "diagnostics": diagnostics})
    assert reported_errors(output) == "  gcp default: no credentials"


@pytest.mark.parametrize(
    ("output", "expected"),
    [("", ""), ("{broken", "{broken"), ("error: the cluster does not answer\n", "error: the cluster does not answer")],
)
def test_reported_errors_of_other_output_are_its_last_lines(output: str, expected: str) -> None:
    assert reported_errors(output) == expected
