"""Question before `up` of a cloud stack: plan, price and quota, and the errors that stop `up` before any change."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from commands import confirmation
from commands.confirmation import NotAllowed, NotConfirmed, check_account, confirm_update, missing_quota, plan_lines
from commands.monitor import cluster
from commands.monitor.cluster import StackOutputs
from commands.monitor.job_state import JobState
from commands.stack import BACKEND_VARIABLE
from infra.naming import JOB_LABEL
from stack.config import parse
from tests.commands.pull_requests import STACK, changed_stack
from tests.unit.stack_settings import CLUSTER, KUBECONFIG

CONFIG = parse(STACK)
QUOTA = CONFIG.cloud.quota()
POOL = "gcp:container/nodePool:NodePool"
JOB_TYPE = "kubernetes:batch/v1:Job"


def preview(*steps: tuple[str, str]) -> str:
    """Return the output of `pulumi preview --json` for pairs of operation and type."""
    found = [
        {"op": operation, "urn": f"urn:pulumi:dev::trainyard::{kind}::name-{place}", "newState": {"inputs": {}}}
        for place, (operation, kind) in enumerate(steps)
    ]
    return json.dumps({"steps": found})


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list for the user's answers. While it is empty, standard input is not a terminal."""
    answers: list[str] = []
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: bool(answers)))
    monkeypatch.setattr("builtins.input", lambda _question: answers.pop(0))
    return answers


def set_plan(monkeypatch: pytest.MonkeyPatch, *steps: tuple[str, str]) -> None:
    """Set the steps of Pulumi's preview."""
    monkeypatch.setattr(confirmation, "pulumi", lambda *_words, **_options: preview(*steps))


def test_confirm_update_shows_plan_price_and_quota_before_the_question(
    monkeypatch: pytest.MonkeyPatch, answers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    set_plan(monkeypatch, ("create", POOL), ("create", POOL), ("create", JOB_TYPE))
    answers.append("y")
    left = {(each.name, each.location): 1000 for each in QUOTA}
    confirm_update("dev", CONFIG, left, is_confirmed=False)
    text = capsys.readouterr().out
    total = CONFIG.cloud.cost_estimate().total.amount
    assert "create 2: 2 NodePool" in text
    assert f"price: ${total:,.2f} an hour, ${total * 24:,.2f} a day, ${total * 730:,.2f} a month" in text
    assert text.count("(1000 left)") == len(QUOTA) > 0
    assert "the stack costs money until `make down STACK=dev`; the stack has no `ttl_hours`" in text


@pytest.mark.parametrize("answer", ["n", None])
def test_confirm_update_without_a_yes_stops_before_the_update(
    monkeypatch: pytest.MonkeyPatch, answers: list[str], answer: str | None
) -> None:
    set_plan(monkeypatch, ("create", POOL))
    answers += [answer] if answer else []
    with pytest.raises(NotConfirmed, match="nothing was changed"):
        confirm_update("dev", CONFIG, {}, is_confirmed=False)


def test_confirm_update_with_yes_asks_nothing(monkeypatch: pytest.MonkeyPatch, answers: list[str]) -> None:
    set_plan(monkeypatch, ("create", POOL))
    answers.append("n")
    confirm_update("dev", CONFIG, {}, is_confirmed=True)
    assert answers == ["n"]


@pytest.mark.parametrize("steps", [[("same", POOL), ("replace", JOB_TYPE)], [("create", "trainyard:gcp:GkeCluster")]])
def test_confirm_update_without_changes_of_cloud_resources_asks_nothing(
    monkeypatch: pytest.MonkeyPatch,
    answers: list[str],
    capsys: pytest.CaptureFixture[str],
    steps: list[tuple[str, str]],
) -> None:
    set_plan(monkeypatch, *steps)
    answers.append("n")
    confirm_update("dev", CONFIG, {}, is_confirmed=False)
    assert answers == ["n"]
    assert "price" not in capsys.readouterr().out


def ended(job: str, operation: str, kind: str = JOB_TYPE) -> dict[str, Any]:
    """Return a step that replaces or deletes a resource of a job."""
    state = {"inputs": {"metadata": {"name": job, "labels": {JOB_LABEL: job}}}}
    urn = f"urn:pulumi:dev::trainyard::{kind}::{job}-{kind.rpartition(':')[2]}"
    return {"op": operation, "urn": urn, "oldState": state}


JOB_STEPS = [
    ended("done", "replace"),
    ended("gone", "delete", "kubernetes:jobset.x-k8s.io/v1alpha2:JobSet"),
    ended("new-runs", "replace"),
    ended("kept", "replace", "kubernetes:core/v1:ConfigMap"),
]


@pytest.fixture
def jobs_of_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a plan that replaces and deletes jobs, and a stack whose cluster does not answer."""
    monkeypatch.setattr(confirmation, "pulumi", lambda *_words, **_options: json.dumps({"steps": JOB_STEPS}))
    found = {"kubeconfig_path": "/no/kubeconfig", "namespace": "training", "jobs": []}
    monkeypatch.setattr(cluster, "outputs", lambda _stack: found)


def test_confirm_update_about_an_existing_cluster_is_only_about_ended_jobs(
    monkeypatch: pytest.MonkeyPatch, answers: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    config = parse({"platform": {**CLUSTER, "kubeconfig": str(KUBECONFIG)}, "jobs": []})
    set_plan(monkeypatch, ("update", "random:index/randomId:RandomId"))
    confirm_update("dev", config, {}, is_confirmed=False)
    assert "price" not in capsys.readouterr().out
    monkeypatch.setattr(confirmation, "pulumi", lambda *_words, **_options: json.dumps({"steps": JOB_STEPS}))
    monkeypatch.setattr(confirmation, "job_states", lambda _stack, _jobs: {})
    with pytest.raises(NotConfirmed, match="End job done"):
        confirm_update("dev", config, {}, is_confirmed=False)
    assert answers == []


@pytest.mark.usefixtures("jobs_of_plan")
def test_confirm_update_names_the_ended_jobs_that_are_running(
    monkeypatch: pytest.MonkeyPatch, answers: list[str]
) -> None:
    states = {"done": "complete", "gone": "running", "new-runs": "queued"}
    found = {name: JobState(name=name, kind="", state=state) for name, state in states.items()}
    monkeypatch.setattr(
        StackOutputs, "cluster", lambda _self: SimpleNamespace(jobs=lambda names: {name: found[name] for name in names})
    )
    message = r"End job gone, which is running, and end job new-runs, which is queued\? There is no terminal"
    with pytest.raises(NotConfirmed, match=message):
        confirm_update("dev", CONFIG, {}, is_confirmed=False)
    confirm_update("dev", CONFIG, {}, is_confirmed=True)
    found["gone"] = found["done"]
    confirm_update("dev", CONFIG, {}, is_confirmed=False, rerun="new-runs")
    assert answers == []


@pytest.mark.usefixtures("jobs_of_plan", "answers")
def test_confirm_update_about_ended_jobs_of_an_unreachable_cluster_names_all() -> None:
    with pytest.raises(NotConfirmed, match=r"^End job done, whose state is unknown, and end job gone"):
        confirm_update("dev", CONFIG, {}, is_confirmed=False)


def test_confirm_update_without_enough_quota_is_an_error_despite_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    set_plan(monkeypatch, ("create", POOL))
    key = (QUOTA[0].name, QUOTA[0].location)
    with pytest.raises(NotAllowed, match=f"needs {QUOTA[0].amount} of .*, but only 0 are left"):
        confirm_update("dev", CONFIG, {key: 0}, is_confirmed=True)


def test_missing_quota_with_exactly_enough_is_empty() -> None:
    assert list(missing_quota(CONFIG, {(QUOTA[0].name, QUOTA[0].location): QUOTA[0].amount})) == []


def set_history(monkeypatch: pytest.MonkeyPatch, values: Mapping[str, Any], result: str) -> None:
    """Set a plan that updates a pool, and a history: an update with these settings and this result, then a refresh."""
    config = {f"trainyard:{key}": {"value": json.dumps(value), "objectValue": value} for key, value in values.items()}
    refresh = {"kind": "refresh", "result": "succeeded", "config": {}}
    history = json.dumps([refresh, {"kind": "update", "result": result, "config": config}])
    plan = preview(("same", "gcp:compute/network:Network"), ("update", POOL))
    monkeypatch.setattr(confirmation, "pulumi", lambda *words, **_options: history if words[1] == "history" else plan)


@pytest.mark.parametrize(("left", "is_enough"), [(16, True), (15, False)])
def test_confirm_update_for_a_larger_pool_needs_quota_for_the_difference(
    monkeypatch: pytest.MonkeyPatch, left: int, is_enough: bool
) -> None:
    more = parse(changed_stack({"nodes": 4}))
    set_history(monkeypatch, STACK, "succeeded")
    cpus = next(each for each in more.cloud.quota() if each.name.startswith("CPUS"))
    remaining_quota = {(cpus.name, cpus.location): left}
    if is_enough:
        confirm_update("dev", more, remaining_quota, is_confirmed=True)
    else:
        with pytest.raises(NotAllowed, match="needs 16 more of us-central1 CPUS, but only 15 are left"):
            confirm_update("dev", more, remaining_quota, is_confirmed=True)


def test_confirm_update_after_a_failed_update_checks_no_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    set_history(monkeypatch, STACK, "failed")
    confirm_update("dev", CONFIG, dict.fromkeys(((each.name, each.location) for each in QUOTA), 0), is_confirmed=True)


def test_confirm_update_previews_with_the_options_of_the_update(
    monkeypatch: pytest.MonkeyPatch, answers: list[str]
) -> None:
    del answers
    plans = {True: preview(("replace", POOL)), False: preview(("same", POOL))}
    monkeypatch.setattr(confirmation, "pulumi", lambda *words, **_options: plans["--replace" in words])
    confirm_update("dev", CONFIG, {}, is_confirmed=False)
    with pytest.raises(NotConfirmed):
        confirm_update("dev", CONFIG, {}, ["--replace", "urn"], is_confirmed=False)


def test_confirm_update_about_a_replaced_bucket_is_an_error_despite_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    set_plan(monkeypatch, ("same", POOL), ("replace", "gcp:storage/bucket:Bucket"))
    with pytest.raises(NotAllowed, match="would replace bucket name-1 with its checkpoints"):
        confirm_update("dev", CONFIG, {}, is_confirmed=True)


def test_plan_lines_name_the_end_of_the_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    config = parse({**STACK, "ttl_hours": 12})
    monkeypatch.setenv(BACKEND_VARIABLE, "gs://states")
    end = "the GitHub workflow `destroy` removes the stack after 12 h, if a reviewer approves"
    assert end in plan_lines("dev", config, [], {})[-1]
    monkeypatch.delenv(BACKEND_VARIABLE)
    assert "`ttl_hours` has no effect" in plan_lines("dev", config, [], {})[-1]


def set_account(monkeypatch: pytest.MonkeyPatch, login: str, answer: Mapping[tuple[str, str], int] | Exception) -> None:
    """Set the problem with the credentials (empty if they are valid) and the answer to the quota query."""

    def remaining_quota(_self: Any, _run: Any) -> Mapping[tuple[str, str], int]:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(confirmation, "missing_credentials", lambda _scheme: login)
    monkeypatch.setattr(type(CONFIG.cloud), "remaining_quota", remaining_quota)


def test_check_account_returns_the_remaining_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    set_account(monkeypatch, "", {("CPUS", "us-central1"): 8})
    assert check_account("dev", CONFIG) == {("CPUS", "us-central1"): 8}


def test_check_account_without_the_clouds_command_says_that_the_quota_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_account(monkeypatch, "", FileNotFoundError("gcloud"))
    assert check_account("dev", CONFIG) == {}
    assert "quota is unknown, because `gcloud` is missing" in capsys.readouterr().out


DISABLED = """\
ERROR: (gcloud.compute.regions.describe) PERMISSION_DENIED: Compute Engine API has not been used in project 1 before \
or it is disabled.
- '@type': type.googleapis.com/google.rpc.ErrorInfo
  domain: googleapis.com
  reason: SERVICE_DISABLED
"""
"""Error of `gcloud` for a new project."""


def test_check_account_of_a_new_project_says_that_the_quota_is_unknown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    set_account(monkeypatch, "", subprocess.CalledProcessError(1, ["gcloud"], stderr=DISABLED))
    assert check_account("dev", CONFIG) == {}
    assert "quota is unknown, because the project has not enabled" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("login", "answer", "message"),
    [
        ("this machine has no credentials", {}, "this machine has no credentials; nothing was created"),
        (
            "",
            subprocess.CalledProcessError(1, ["gcloud"], stderr="ERROR: no account\n\nto select one\n"),
            "the account cannot be queried: ERROR: no account to select one; if you are not logged in, "
            r"run `gcloud auth login` and .*; otherwise check `platform` in Pulumi\.dev\.yaml, "
            "and your permissions; nothing was created",
        ),
    ],
)
def test_check_account_of_an_unusable_account_is_an_error(
    monkeypatch: pytest.MonkeyPatch, login: str, answer: Any, message: str
) -> None:
    set_account(monkeypatch, login, answer)
    with pytest.raises(NotAllowed, match=message):
        check_account("dev", CONFIG)


def test_check_account_above_the_budget_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    set_account(monkeypatch, "", {})
    with pytest.raises(NotAllowed, match=r"stack dev costs .* more than `budget: 0\.1`"):
        check_account("dev", parse({**STACK, "budget": 0.1}))
