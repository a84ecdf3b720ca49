"""Workflows on GitHub: credentials only after approval, none for pull requests, and an hourly schedule."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[2] / ".github" / "workflows"
STACK = "${{ matrix.stack }}"


def workflow(name: str) -> dict[Any, Any]:
    """Return a workflow. YAML reads its key `on` as True."""
    found: dict[Any, Any] = yaml.safe_load((FOLDER / f"{name}.yml").read_text(encoding="utf-8"))
    return found


def test_pull_request_workflow_has_no_credentials() -> None:
    found = workflow("preview")
    assert list(found[True]) == ["pull_request"]
    assert found["permissions"] == {}
    for job in found["jobs"].values():
        assert job["permissions"].items() <= {"contents": "read", "pull-requests": "write"}.items()
        assert "environment" not in job
    text = (FOLDER / "preview.yml").read_text(encoding="utf-8")
    assert not re.search(r"\b(secrets|vars)\.", text)
    assert text.count("actions/checkout@") == text.count("persist-credentials: false")


def test_pull_requests_from_forks_get_only_the_summary() -> None:
    steps = workflow("preview")["jobs"]["report"]["steps"]
    (comment,) = [step for step in steps if "GH_TOKEN" in step.get("env", {})]
    assert "github.event.pull_request.head.repo.full_name == github.repository" in comment["if"]
    (summary,) = [step for step in steps if "GITHUB_STEP_SUMMARY" in step.get("run", "")]
    assert "head.repo" not in summary["if"]


@pytest.mark.parametrize(("name", "command"), [("up", "commands.cli up --yes"), ("destroy", "make down")])
def test_jobs_with_credentials_need_approval_of_their_stack(name: str, command: str) -> None:
    jobs = workflow(name)["jobs"].values()
    (changing,) = [job for job in jobs if any(command in step.get("run", "") for step in job["steps"])]
    assert (changing["environment"], changing["env"]["STACK"]) == (STACK, STACK)
    assert changing["permissions"] == {"contents": "read", "id-token": "write"}


@pytest.mark.parametrize("name", ["ci", "destroy", "preview", "up"])
def test_step_with_sudo_and_the_users_environment_returns_file_ownership_to_the_user(name: str) -> None:
    for job in workflow(name)["jobs"].values():
        texts = [step.get("run", "") for step in job["steps"]]
        for place, text in enumerate(texts):
            _, as_root, rest = text.partition("sudo --preserve-env")
            if as_root and any("sudo" not in later for later in texts[place + 1 :]):
                assert 'sudo chown --recursive "$(id -u):$(id -g)" "$HOME"' in rest


def test_workflows_update_and_rehearse_no_local_stack() -> None:
    (find,) = [step["run"] for step in workflow("up")["jobs"]["stacks"]["steps"] if "run" in step]
    assert "affected --no-local" in find
    report = workflow("preview")["jobs"]["report"]["steps"]
    (rehearsal,) = [step for step in report if "commands.rehearse" in step.get("run", "")]
    assert rehearsal["if"] == "contains(fromJSON(needs.stacks.outputs.rehearsed), matrix.stack)"


def test_up_workflow_does_not_wait_for_the_end_of_the_jobs() -> None:
    steps = workflow("up")["jobs"]["up"]["steps"]
    assert steps[-1]["run"] == ".venv/bin/python -m commands.cli up --yes --no-follow"


def test_destroy_workflow_runs_every_hour() -> None:
    found = workflow("destroy")
    assert all(re.fullmatch(r"\d+ \* \* \* \*", each["cron"]) for each in found[True]["schedule"])
    steps = [step.get("run", "") for step in found["jobs"]["stacks"]["steps"]]
    assert any("commands.workflows expired" in text for text in steps)
    (job,) = [job for name, job in found["jobs"].items() if name != "stacks"]
    assert [step["run"] for step in job["steps"] if "run" in step][-2:] == ["make down", "make verify-empty"]


def test_destroy_workflow_destroys_expired_stacks_although_another_cannot_be_checked() -> None:
    jobs = workflow("destroy")["jobs"]
    assert jobs["destroy"]["if"] == """${{ !cancelled() && startsWith(needs.stacks.outputs.stacks, '["') }}"""
    (script,) = [step["run"] for step in jobs["stacks"]["steps"] if step.get("id") == "expired"]
    assert script.index("expired) || status=$?") < script.index("GITHUB_OUTPUT") < script.index("exit")


@pytest.mark.parametrize(("name", "command"), [("up", "--credentials"), ("destroy", "make down")])
def test_jobs_that_use_a_gke_cluster_install_its_plugin_first(name: str, command: str) -> None:
    steps = workflow(name)["jobs"][name]["steps"]
    commands = [step.get("run", "") for step in steps]
    plugins = [step.get("with", {}).get("install_components") for step in steps]
    logins = [step.get("uses", "").partition("@")[0] for step in steps]
    plugin = plugins.index("gke-gcloud-auth-plugin")
    assert steps[plugin]["if"] == "vars.GCP_WORKLOAD_IDENTITY_PROVIDER != ''"
    assert logins.index("google-github-actions/auth") < plugin
    assert plugin < next(index for index, text in enumerate(commands) if command in text)
