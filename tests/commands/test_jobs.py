"""`make stop` on a real cluster. Requests, errors and questions of stop, resume and rerun without a cluster."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from commands import confirmation, job_results, jobs, up
from commands.bucket import Bucket, BucketError
from commands.confirmation import NotConfirmed, confirm
from commands.follow import Follower
from commands.interrupts import CommandError, ExitStatus
from commands.job_results import finished_lines, report_finished, report_stopped
from commands.jobs import JobError, Stack, _show_end, rerun_question, stopped_lines
from commands.monitor.cluster import Cluster, NotFound, StackOutputs
from commands.monitor.job_state import JobState
from commands.monitor.logs import parse_event
from commands.monitor.pod_state import PodState
from commands.monitor.screen import Screen
from infra.local.settings import ClusterSettings
from infra.make_command import COMMAND_VARIABLE, make_command
from infra.project import PROJECT_VARIABLE
from stack.config import StackConfig, parse
from tests.commands.conftest import Apply, job
from tests.commands.test_screen import FIRST
from tests.local.conftest import wait_for
from tests.terminal import Terminal
from workloads.kinds import KINDS

SAVING_SCRIPT = """
trap 'echo "checkpoint step=7 rank=0/1 path=file:///bucket/x"; exit 75' TERM
while :; do /usr/bin/sleep 0.1; done
"""
JOB = JobState(name="digits", kind="indexed-job", state="running", uid="1")
RECORD = {"bucket_prefix": "digits", "checkpoints": "checkpoints/digits"}


def test_end_seconds_are_longer_than_the_grace_of_the_job() -> None:
    settings = {"name": "digits", "recipe": "digits", "grace_seconds": 3600}
    config = parse({"platform": {"kind": "local"}, "jobs": [settings]})
    assert jobs.end_seconds(config, "digits") == 3600 + jobs.END_SECONDS
    assert jobs.end_seconds(config, "removed-from-the-settings") == jobs.END_SECONDS


@pytest.mark.cluster
def test_stop_saves_and_ends_the_pods_until_the_job_is_resumed(
    cluster: Cluster,
    local: ClusterSettings,
    apply: Apply,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outputs = {
        "kubeconfig_path": str(local.kubeconfig),
        "namespace": "default",
        "jobs": ["stops"],
        "run_records": {"stops": RECORD},
        "bucket_url": "file:///bucket",
    }
    monkeypatch.setattr(jobs, "outputs_with", lambda *_names: outputs)
    document = job("stops", SAVING_SCRIPT)
    document["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] = 20
    apply(document)

    def is_running() -> bool:
        return any(pod.state == "running" for pod in cluster.pods(["stops"]))

    wait_for("the job runs", is_running)
    followed = io.StringIO()
    assert not cluster.jobs(["stops"])["stops"].is_resumed
    follower = Follower(cluster, ["stops"], Screen(followed))
    threading.Thread(target=follower.run, daemon=True).start()
    wait_for("the follower shows the host", lambda: "stops/0 running" in followed.getvalue())
    assert jobs.stop("") == 0
    assert not is_running()
    wait_for("the follower shows the stop", lambda: "stops is stopped" in followed.getvalue())
    assert "stops is stopped; step 7 is saved; `make resume JOB=stops` continues it" in followed.getvalue()
    assert "failed" not in followed.getvalue()
    text = capsys.readouterr().out
    assert "checkpoint step=7" in text
    assert "stops is stopped; step 7 is saved\n  `make resume JOB=stops` continues from step 7" in text
    assert report_stopped(cluster, ["stops"]) == ["stops"]
    assert jobs.stop("stops") == 0
    assert "stops is already stopped; `make resume JOB=stops` continues it" in capsys.readouterr().out
    cluster.set_suspended(cluster.jobs(["stops"])["stops"], False)
    wait_for("the job runs again", is_running)
    assert cluster.jobs(["stops"])["stops"].is_resumed
    wait_for("the follower shows the host again", lambda: followed.getvalue().count("stops/0 running") == 2)
    assert follower.results == {}, "a stop must not count as a restart"
    cluster.delete(cluster.jobs(["stops"])["stops"])
    wait_for("the job is gone", lambda: cluster.jobs(["stops"])["stops"].state == "absent")
    assert cluster.pods(["stops"]) == []


class RecordedApi:
    """API client that records its requests."""

    def __init__(self, items: list[dict[str, Any]] | None = None) -> None:
        self.requests: list[tuple[str, tuple[Any, ...]]] = []
        self._items = items or []

    def __getattr__(self, name: str) -> Any:
        def call(*words: Any, **_options: Any) -> Any:
            self.requests.append((name, words))
            return SimpleNamespace(data=json.dumps({"items": self._items}).encode())

        return call


def client(api: RecordedApi) -> Cluster:
    """Return a client whose requests are recorded."""
    made = Cluster.__new__(Cluster)
    made.namespace = "training"
    made.__dict__ |= {"_core": api, "_batch": api, "_custom": api}
    return made


@pytest.mark.parametrize("kind", [name for name, kind in KINDS.items() if kind.resource])
def test_set_suspended_patches_the_key_of_the_kind(kind: str) -> None:
    api, resource = RecordedApi(), KINDS[kind].resource
    assert resource is not None
    client(api).set_suspended(replace(JOB, kind=kind), True)
    ((name, words),) = api.requests
    operator_keys = {"kubeflow.org": {"runPolicy": {"suspend": True}}}
    assert name == "patch_namespaced_custom_object"
    assert words[2:5] == ("training", resource.plural, "digits")
    assert words[5] == {"spec": operator_keys.get(words[0], {"suspend": True})}


def test_set_suspended_of_a_queued_job_deactivates_its_workload() -> None:
    workloads = [
        {"metadata": {"name": "job-digits-1", "ownerReferences": [{"uid": "1"}]}},
        {"metadata": {"name": "job-other-2", "ownerReferences": [{"uid": "2"}]}},
    ]
    api = RecordedApi(workloads)
    client(api).set_suspended(replace(JOB, queue="research"), True)
    name, words = api.requests[-1]
    assert (name, words[-2:]) == ("patch_namespaced_custom_object", ("job-digits-1", {"spec": {"active": False}}))
    assert len(api.requests) == 2


def config_of(flags: dict[str, str], *others: dict[str, Any]) -> StackConfig:
    """Return the settings of a stack: the job `digits` with these flags, and other jobs."""
    digits = {"name": "digits", "recipe": "digits", "flags": flags}
    return parse({"platform": {"kind": "local", "nodes": 2}, "jobs": [digits, *others]})


def test_set_suspended_of_a_queued_job_without_a_workload_is_an_error() -> None:
    with pytest.raises(NotFound, match="Kueue has no workload of job digits in queue research; nothing was changed"):
        client(RecordedApi()).set_suspended(replace(JOB, queue="research"), True)


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Make every command use a stack with one job, and return that stack. Tests set the job's state as `current`."""
    outputs = {"bucket_url": "file:///bucket", "jobs": ["digits"], "run_records": {}}
    made = SimpleNamespace(name="local", job="digits", outputs=outputs)
    made.state = lambda: made.current
    made.command = lambda target, **variables: make_command(target, JOB="digits", **variables)
    made.config = lambda **_options: config_of({})
    monkeypatch.setattr(jobs, "Stack", lambda _target, _job: made)
    return made


@pytest.mark.parametrize(
    ("command", "state", "message"),
    [
        (jobs.stop, "absent", "does not exist; `make up` creates it"),
        (jobs.stop, "failed", "has already ended \\(failed\\); `make rerun JOB=digits`"),
        (jobs.resume, "absent", "does not exist; `make up` creates it"),
        (jobs.resume, "complete", "is complete; `make rerun JOB=digits FRESH=1` runs it again from the start"),
        (jobs.resume, "running", "is running; `make logs JOB=digits` follows it"),
    ],
)
def test_stop_or_resume_of_a_job_in_another_state_is_an_error(
    stack: SimpleNamespace, command: Callable[[str], int], state: str, message: str
) -> None:
    stack.current = replace(JOB, state=state)
    with pytest.raises(JobError, match=message):
        command("digits")


@pytest.mark.parametrize(("command", "state"), [(jobs.stop, "running"), (jobs.resume, "suspended")])
def test_stop_or_resume_with_invalid_settings_lists_the_problems_and_changes_nothing(
    stack: SimpleNamespace,
    command: Callable[[str], int],
    state: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "Pulumi.local.yaml").write_text("config: {trainyard:platform: {kind: nowhere}}", encoding="utf-8")
    monkeypatch.setattr(jobs, "PROJECT", tmp_path)
    # The stack has no cluster, so a change of the job would raise AttributeError.
    stack.current = replace(JOB, state=state)
    stack.config = lambda: Stack.config(cast("Stack", stack))
    with pytest.raises(CommandError, match=r"Pulumi\.local\.yaml: 2 problems(.|\n)*trainyard:jobs: is missing"):
        command("digits")


def test_config_of_a_stack_with_an_invalid_script_is_an_error_only_for_an_update(
    stack: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs_text = "[{name: digits, script: ./train.py, data: ./moved, requirements: absent.txt}]"
    text = f"config: {{trainyard:platform: {{kind: local}}, trainyard:jobs: {jobs_text}}}"
    (tmp_path / "Pulumi.local.yaml").write_text(text, encoding="utf-8")
    (tmp_path / "train.py").write_text("print(", encoding="utf-8")
    monkeypatch.setattr(jobs, "PROJECT", tmp_path)
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    made = cast("Stack", stack)
    assert [each.name for each in Stack.config(made).jobs] == ["digits"]
    stack.config = lambda **options: Stack.config(made, **options)
    with pytest.raises(CommandError, match="has a syntax error"):
        jobs.rerun("digits", fresh=False, is_confirmed=True)


def test_stop_of_an_interactive_ray_job_is_an_error_with_a_remedy(stack: SimpleNamespace) -> None:
    stack.current = replace(JOB, kind="ray-job")
    interactive = SimpleNamespace(name="digits", kind="ray-job", interactive=True)
    stack.config = lambda: SimpleNamespace(jobs=[interactive])
    with pytest.raises(JobError, match=r"remove it from Pulumi\.local\.yaml and run `make up`"):
        jobs.stop("digits")


def test_rerun_of_a_complete_recipe_without_fresh_is_an_error_with_both_remedies(stack: SimpleNamespace) -> None:
    stack.current = replace(JOB, state="complete")
    with pytest.raises(JobError, match=r"`make rerun JOB=digits FRESH=1` trains it from the beginning; .*`make up`"):
        jobs.rerun("digits", fresh=False, is_confirmed=True)


def test_rerun_of_a_job_without_settings_is_an_error(stack: SimpleNamespace) -> None:
    stack.job, stack.current = "example", JOB
    with pytest.raises(JobError, match=r"job example is not in Pulumi\.local\.yaml"):
        jobs.rerun("example", fresh=False, is_confirmed=True)


def test_rerun_of_a_running_job_without_a_terminal_changes_nothing(
    stack: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.current = JOB
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
    with pytest.raises(NotConfirmed, match=r"End job digits, which is running\? There is no terminal") as caught:
        jobs.rerun("digits", fresh=False, is_confirmed=False)
    assert caught.value.status == ExitStatus.NOT_CONFIRMED


@pytest.mark.parametrize(
    ("state", "saved", "expected"),
    [
        ("failed", [], ""),
        ("running", [], "End job digits, which is running"),
        ("failed", ["step-1", "step-2"], "Delete its checkpoints in /b/Digits (step-1 to step-2)"),
        ("running", ["step-1"], "End job digits, which is running, and delete its checkpoints in /b/Digits (step-1)"),
    ],
)
def test_rerun_question_names_what_is_lost(state: str, saved: list[str], expected: str) -> None:
    assert rerun_question("digits", replace(JOB, state=state), "/b/Digits", saved) == expected


class RecordedRerun:
    """Fake cluster, bucket and engine of a rerun. `changes` lists the calls in order."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, stack: SimpleNamespace) -> None:
        self.changes: list[str] = []
        self.checkpoints = folder / "checkpoints"
        stack.outputs["bucket_url"] = f"file://{folder}"
        stack.cluster = SimpleNamespace(delete=self._end)
        self._stack = stack
        monkeypatch.setattr(jobs, "prepare", lambda *_words: [])
        monkeypatch.setattr(jobs, "stack_lock", lambda *_words: nullcontext())
        monkeypatch.setattr(jobs, "outputs_with", lambda *_names: stack.outputs)
        monkeypatch.setattr(jobs, "pulumi", lambda *words, **_options: self.changes.append(words[0]))
        monkeypatch.setattr(jobs, "_follow", lambda *_words: 0)

    def save(self, path: str) -> None:
        """Write a checkpoint."""
        (self.checkpoints / path).mkdir(parents=True)

    def _end(self, _state: JobState) -> None:
        self.save("digits/step-000000007")
        self.changes.append("end")
        self._stack.current = replace(JOB, state="absent", uid="")


def test_rerun_fresh_also_deletes_the_checkpoint_that_the_ending_job_saves(
    stack: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.current = JOB
    run = RecordedRerun(tmp_path, monkeypatch, stack)
    run.save("other/step-000000001")
    assert jobs.rerun("digits", fresh=True, is_confirmed=True) == 0
    assert run.changes == ["end", "refresh", "up"]
    assert [each.name for each in run.checkpoints.iterdir()] == ["other"]


@pytest.mark.parametrize("is_script", [False, True])
def test_rerun_fresh_deletes_the_tokenizer_of_a_recipe_and_no_folder_of_a_script(
    is_script: bool,
    stack: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    stack.current = JOB
    RecordedRerun(tmp_path, monkeypatch, stack)
    program = {"script": "./images/lightning/elastic_lightning.py"} if is_script else {"recipe": "language"}
    config = parse({"platform": {"kind": "local"}, "jobs": [{"name": "digits", **program}]})
    monkeypatch.setattr(stack, "config", lambda **_options: config)
    tokenizer = tmp_path / "digits" / "tokenizer"
    tokenizer.mkdir(parents=True)
    (tokenizer / "tokenizer.json").touch()
    assert jobs.rerun("digits", fresh=True, is_confirmed=True) == 0
    assert tokenizer.exists() == is_script
    assert (f"digits: deleted the tokenizer in {tokenizer}\n" in capsys.readouterr().out) == (not is_script)


@pytest.mark.parametrize(
    ("fresh", "advice"), [(True, "`make rerun JOB=digits FRESH=1`"), (False, "`make rerun JOB=digits`")]
)
def test_interrupted_rerun_advises_the_same_command(
    stack: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: bool, advice: str
) -> None:
    stack.current = JOB
    RecordedRerun(tmp_path, monkeypatch, stack)
    closings: list[str] = []
    monkeypatch.setattr(jobs, "set_closing", closings.append)
    jobs.rerun("digits", fresh=fresh, is_confirmed=True)
    assert f"the job may be deleted; {advice} creates it again" in closings


@pytest.mark.parametrize("names", [["digits"], ["digits", "other"]])
def test_rerun_asks_before_it_ends_another_job_of_the_stack(
    stack: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: list[str]
) -> None:
    stack.current = replace(JOB, state="failed")
    stack.outputs["jobs"] = names
    run, asked = RecordedRerun(tmp_path, monkeypatch, stack), list[str]()

    def confirm_update(*_words: object, rerun: str, **_options: object) -> None:
        asked.append(rerun)
        raise NotConfirmed

    monkeypatch.setattr(confirmation, "confirm_update", confirm_update)
    with pytest.raises(NotConfirmed) if len(names) > 1 else nullcontext():
        jobs.rerun("digits", fresh=False, is_confirmed=False)
    assert asked == (["digits"] if len(names) > 1 else [])
    assert run.changes == ([] if len(names) > 1 else ["end", "refresh", "up"])


def test_rerun_without_fresh_keeps_the_checkpoints(
    stack: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.current = JOB
    run = RecordedRerun(tmp_path, monkeypatch, stack)
    assert jobs.rerun("digits", fresh=False, is_confirmed=True) == 0
    assert (run.checkpoints / "digits" / "step-000000007").is_dir()


def write_curves(folder: Path) -> list[str]:
    """Write the files that runs of two jobs leave. Return the paths."""
    paths = ["digits/metrics/rank-0.jsonl", "digits/tensorboard/events", "digits/run-record.json", "other/metrics/r"]
    for path in paths:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(path, encoding="utf-8")
    return paths


def test_rerun_fresh_moves_the_curves_to_a_folder_of_earlier_runs(
    stack: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stack.current = JOB
    RecordedRerun(tmp_path, monkeypatch, stack)
    write_curves(tmp_path)
    assert jobs.rerun("digits", fresh=True, is_confirmed=True) == 0
    assert sorted(each.name for each in (tmp_path / "digits").iterdir()) == ["earlier", "run-record.json"]
    (earlier,) = (tmp_path / "digits" / "earlier").iterdir()
    assert (earlier / "metrics" / "rank-0.jsonl").read_text(encoding="utf-8") == "digits/metrics/rank-0.jsonl"
    assert (earlier / "tensorboard" / "events").is_file()
    assert (tmp_path / "other" / "metrics" / "r").is_file()
    assert f"digits: moved the curves of its earlier runs to {earlier}\n" in capsys.readouterr().out


def test_rerun_without_fresh_keeps_the_curves_in_place(
    stack: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.current = JOB
    RecordedRerun(tmp_path, monkeypatch, stack)
    paths = write_curves(tmp_path)
    assert jobs.rerun("digits", fresh=False, is_confirmed=True) == 0
    assert all((tmp_path / path).is_file() for path in paths)


def test_rerun_fresh_that_cannot_move_the_curves_keeps_the_checkpoints(
    stack: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.current = JOB
    run = RecordedRerun(tmp_path, monkeypatch, stack)
    paths = write_curves(tmp_path)
    (tmp_path / "digits" / "earlier").write_text("a file", encoding="utf-8")
    with pytest.raises(BucketError, match=r"digits/metrics: cannot be moved to .*digits/earlier/"):
        jobs.rerun("digits", fresh=True, is_confirmed=True)
    assert (run.checkpoints / "digits" / "step-000000007").is_dir()
    assert all((tmp_path / path).is_file() for path in paths)


OTHER_BUCKET = {"job": "shared", "bucket": "file:///bucket/team"}
SHARED = {"name": "shared", "recipe": "digits"}


@pytest.mark.parametrize(
    ("flags", "others", "records", "message"),
    [
        (OTHER_BUCKET, [SHARED], {}, "has `bucket: file:///bucket/team` in its `flags`"),
        (
            {"job": "shared"},
            [{**SHARED, "name": "b", "flags": OTHER_BUCKET}],
            {},
            "folder checkpoints/shared also belongs to job b",
        ),
        ({}, [], {"old": {"checkpoints": "checkpoints/digits"}}, "folder checkpoints/digits also belongs to job old"),
    ],
)
def test_rerun_fresh_never_deletes_the_checkpoints_of_another_job(
    stack: SimpleNamespace,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: dict[str, str],
    others: list[dict[str, Any]],
    records: dict[str, Any],
    message: str,
) -> None:
    stack.current = JOB
    run = RecordedRerun(tmp_path, monkeypatch, stack)
    run.save("shared/step-000000001")
    run.save("digits/step-000000001")
    stack.outputs["run_records"] = records
    stack.config = lambda **_options: config_of(flags, *others)
    with pytest.raises(JobError, match=f"{message}.*nothing was deleted.*run `make up`"):
        jobs.rerun("digits", fresh=True, is_confirmed=True)
    assert run.changes == []
    assert sorted(each.name for each in run.checkpoints.glob("*/*")) == ["step-000000001"] * 2


def test_rerun_fresh_of_a_job_without_a_bucket_deletes_nothing(
    stack: SimpleNamespace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.current = replace(JOB, state="absent", uid="")
    run = RecordedRerun(tmp_path, monkeypatch, stack)
    run.save("digits/step-000000001")
    stack.config = lambda **_options: config_of({"bucket": ""})
    assert jobs.rerun("digits", fresh=True, is_confirmed=True) == 0
    assert (run.checkpoints / "digits" / "step-000000001").is_dir()


@pytest.mark.parametrize(("answer", "is_yes"), [("y", True), ("YES ", True), ("", False), ("n", False)])
def test_confirm_accepts_only_yes(answer: str, is_yes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", lambda _question: answer)
    if is_yes:
        confirm("Delete it")
    else:
        with pytest.raises(NotConfirmed, match="nothing was changed"):
            confirm("Delete it")


def test_confirm_at_the_end_of_the_input_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def end(_question: str) -> str:
        raise EOFError

    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("builtins.input", end)
    with pytest.raises(NotConfirmed, match="nothing was changed"):
        confirm("Delete it")


def test_confirm_with_yes_asks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("builtins.input", lambda _question: pytest.fail("a question was asked"))
    confirm("Delete it", is_confirmed=True)


@pytest.mark.parametrize(("program", "option"), [("", "YES=1"), ("trainyard", "--yes")])
def test_confirm_without_terminal_names_the_option(program: str, option: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: False))
    monkeypatch.setenv(COMMAND_VARIABLE, program)
    with pytest.raises(NotConfirmed, match=rf"^Delete it\? There is no terminal.*; add `{option}` to answer yes$"):
        confirm("Delete it")


def test_stopped_lines_without_a_checkpoint_report_the_missing_log_line() -> None:
    assert stopped_lines("mine", None, "`r`", "`f`") == [
        "mine is stopped; its hosts printed no line about a checkpoint, such as `checkpoint step=12`",
        "  `r` starts it again; `f` copies what it has saved",
    ]
    saved = parse_event("checkpoint step=120 rank=0/2")
    assert stopped_lines("mine", saved, "`r`", "`f`")[0] == "mine is stopped; step 120 is saved"


def test_stopped_lines_without_access_to_the_bucket_do_not_advise_fetch() -> None:
    assert stopped_lines("mine", None, "`r`", "")[1] == "  `r` starts it again"
    assert stopped_lines("mine", parse_event("checkpoint step=120"), "`r`", "")[1] == "  `r` continues from step 120"


@pytest.mark.parametrize(
    ("state", "is_script", "expected"),
    [
        ("complete", False, ["raise `epochs`", "from the beginning: `make rerun JOB=digits FRESH=1`"]),
        ("failed", False, ["its last checkpoint: `make rerun JOB=digits`", "`make rerun JOB=digits FRESH=1`"]),
        ("failed", True, ["to run it again: `make rerun JOB=digits`, or change its script"]),
    ],
)
def test_finished_lines_have_the_next_commands(state: str, is_script: bool, expected: list[str]) -> None:
    over = replace(JOB, state=state, finished="2026-11-26T10:00:00Z")
    lines = finished_lines(over, [], RECORD, "file:///b", is_script=is_script)
    text = "\n".join(lines)
    assert f"`make fetch JOB=digits` copies its {'results' if is_script else 'checkpoints and metrics'}" in text
    assert ("metrics" in text) is not is_script
    assert all(each in text for each in expected)


@pytest.mark.parametrize("is_script", [True, False])
def test_finished_lines_without_access_to_the_bucket_name_no_fetch_and_no_run_record(is_script: bool) -> None:
    over = replace(JOB, state="complete", finished="2026-11-26T10:00:00Z")
    text = "\n".join(finished_lines(over, [], RECORD, "file:///bucket", is_script=is_script, can_fetch=False))
    assert "make fetch" not in text
    assert "run record" not in text
    assert "checkpoints: file:///bucket/" in text


def test_report_finished_shows_the_result_in_lines_of_the_terminals_width(monkeypatch: pytest.MonkeyPatch) -> None:
    over = replace(JOB, state="complete", started="2026-11-26T09:00:00Z", finished="2026-11-26T10:00:00Z")
    pod = replace(FIRST, owner=over.uid, state="succeeded", node="node-0")
    pods: list[PodState] = [replace(pod, uid="other", index=1), pod]
    line = "done epochs=2 test_accuracy=98.10 best_accuracy=98.30"
    cluster: Any = SimpleNamespace(
        jobs=lambda _names: {"digits": over}, pods=lambda _names: pods, log=lambda read, _tail: [line] * (read is pod)
    )
    out = Terminal()
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("COLUMNS", "80")
    outputs = {"bucket_url": "file:///b", "run_records": {"digits": RECORD}}
    assert report_finished(cluster, config_of({}), outputs, ["digits"], "9999") == {"digits": "complete"}
    assert "test accuracy 98.10 % (best 98.30 %)" in " ".join(out.lines)
    assert max(map(len, out.lines)) <= 80


@pytest.fixture
def outputs_of_running_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Return the outputs of a stack whose job `digits` runs. Its bucket is the temporary folder."""
    cluster = SimpleNamespace(jobs=lambda names: {name: JOB for name in names})
    monkeypatch.setattr(StackOutputs, "cluster", lambda _self: cluster)
    return {
        "kubeconfig_path": str(tmp_path),
        "namespace": "training",
        "jobs": ["digits"],
        "bucket_url": f"file://{tmp_path}",
        "run_records": {"digits": {**RECORD, "commit": "A", "chips": 0, "usd_per_hour": None}},
    }


def test_follow_jobs_writes_the_record_of_a_job_before_it_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outputs_of_running_job: dict[str, Any]
) -> None:
    monkeypatch.setattr(job_results, "follow", lambda *_words, **_options: ExitStatus.INTERRUPTED)
    followed = job_results.follow_jobs("local", config_of({}), outputs_of_running_job, "2026-11-27T10:00:00Z")
    assert followed == (ExitStatus.INTERRUPTED, False)
    found = json.loads((tmp_path / "digits" / "run-record.json").read_text(encoding="utf-8"))
    assert (found["commit"], found["uid"], found["state"]) == ("A", JOB.uid, JOB.state)


def test_up_without_following_ends_while_the_job_runs_and_writes_its_record(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    outputs_of_running_job: dict[str, Any],
) -> None:
    pool = {"name": "cpu", "machine_type": "n2-standard-8", "nodes": 2}
    settings = {"kind": "gke", "project": "some-project", "pools": [pool]}
    content = {"config": {"trainyard:platform": settings, "trainyard:jobs": [{"name": "digits", "recipe": "digits"}]}}
    (tmp_path / "Pulumi.dev.yaml").write_text(json.dumps(content), encoding="utf-8")
    monkeypatch.setenv("STACK", "dev")
    monkeypatch.setattr(up, "PROJECT", tmp_path)
    monkeypatch.setattr(up, "stack_environment", dict)
    monkeypatch.setattr("commands.confirmation.check_account", lambda *_words: {})
    monkeypatch.setattr(up, "set_up", lambda _config: 0)
    monkeypatch.setattr(up, "stack_lock", lambda *_words: nullcontext())
    monkeypatch.setattr(up, "bring_up", lambda *_words: outputs_of_running_job)
    monkeypatch.setattr(Bucket, "problem", "")
    assert up.main(no_follow=True) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "stack dev is up; `make logs STACK=dev` follows its jobs"
    assert (tmp_path / "digits" / "run-record.json").is_file()


@pytest.mark.parametrize(
    ("text", "is_shown"),
    [
        ("error: preempted at step 63 (rank 0, exit code 75)", False),
        ("error: the checkpoint cannot be written (rank 0, exit code 74)", True),
    ],
)
def test_stop_shows_only_unexpected_errors(text: str, is_shown: bool) -> None:
    out = io.StringIO()
    assert _show_end(FIRST, text, Screen(out)) is None
    assert bool(out.getvalue()) == is_shown


def test_ctrl_d_at_a_question_ends_the_line_of_the_question(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdin", Terminal())
    with pytest.raises(NotConfirmed, match="nothing was changed"):
        confirm("Delete its checkpoints")
    assert capsys.readouterr().out == "Delete its checkpoints? [y/N] \n"
