"""`make exec`: its pod and kubectl command, jobs without running pods, and lost connections."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from commands import jobs
from commands.jobs import kubectl_command, pod_of, run_kubectl
from commands.monitor.cluster import StackNotFound, StackOutputs, job_named
from commands.monitor.job_state import JobState
from commands.monitor.pod_state import PodState
from infra.make_command import COMMAND_VARIABLE

OUTPUTS = StackOutputs(kubeconfig_path="/k", namespace="training", jobs=("a", "b"), context="c")
HOST = PodState(uid="0", name="a-0-x", job="a", index=0, processes=2, node="n", state="running")
JOB = JobState(name="a", kind="indexed-job", state="running", uid="1")
PODS = [
    HOST,
    replace(HOST, uid="1", name="a-1-x", index=1),
    replace(HOST, uid="2", name="a-launcher-x", role="launcher"),
    replace(HOST, uid="3", name="a-2-x", index=2, state="pending"),
]


@pytest.mark.parametrize(
    ("rank", "name"), [("0", "a-0-x"), ("3", "a-1-x"), ("2-3", "a-1-x"), ("launcher", "a-launcher-x")]
)
def test_pod_of_a_running_rank_returns_its_pod(rank: str, name: str) -> None:
    assert pod_of(PODS, rank, lambda: JOB).name == name


@pytest.mark.parametrize("rank", ["4", "7", "x"])
def test_pod_of_a_rank_that_does_not_run_lists_the_running_ranks(rank: str) -> None:
    with pytest.raises(
        StackNotFound, match=f"RANK={rank}: no pod of this rank is running; running: 0-1, 2-3, launcher; name one"
    ):
        pod_of(PODS, rank, lambda: JOB)


@pytest.mark.parametrize(
    ("state", "program", "option", "reason"),
    [
        ("suspended", "trainyard", "--rank 0", "job a is stopped; `trainyard resume a` continues it"),
        ("suspended", "", "RANK=0", "job a is stopped; `make resume JOB=a` continues it"),
        (
            "complete",
            "trainyard",
            "--rank 0",
            "job a is complete; `trainyard rerun a --fresh` runs it again from the start",
        ),
        ("absent", "trainyard", "--rank 0", "job a does not exist; `trainyard up` creates it"),
        ("pending", "trainyard", "--rank 0", "job a is pending; `trainyard status` shows its events"),
    ],
)
def test_pod_of_a_job_without_running_pods_says_what_to_do(
    state: str, program: str, option: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(COMMAND_VARIABLE, program)
    monkeypatch.setenv("STACK", "local")
    with pytest.raises(StackNotFound) as raised:
        pod_of([replace(HOST, state="succeeded")], "0", lambda: replace(JOB, state=state))
    assert str(raised.value) == f"{option}: no pod of this rank is running: {reason}"


LOST_CONNECTION = (
    'E1127 01:51:12.000000   42 websocket.go:296] "Unknown stream" err="websocket: close 1006 (abnormal closure)"'
)
"""Line that kubectl prints when it loses its connection."""


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        (f"echo '{LOST_CONNECTION}' >&2; exit 1", (1, True)),
        ("echo websocket: close >&2; exit 1", (1, False)),
        ("true", (0, False)),
    ],
)
def test_run_kubectl_detects_a_lost_connection_and_shows_stderr(
    script: str, expected: tuple[int, bool], capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_kubectl(["sh", "-c", script], {}) == expected
    assert ("websocket" in capfd.readouterr().err) == ("websocket" in script)


def test_exec_with_a_lost_connection_names_the_reason_and_make_status(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f"#!/bin/sh\necho '{LOST_CONNECTION}' >&2\nexit 1\n", encoding="utf-8")
    kubectl.chmod(0o755)
    monkeypatch.setattr(jobs, "stack_environment", lambda: {"PATH": f"{tmp_path}:/usr/bin:/bin"})
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    cluster = SimpleNamespace(pods=lambda _names: PODS)
    monkeypatch.setattr(
        jobs, "stack_outputs", lambda: SimpleNamespace(**vars(OUTPUTS) | {"jobs": ("a",), "cluster": lambda: cluster})
    )
    for name in ("JOB", "RANK", "STACK"):
        monkeypatch.setenv(name, "")
    assert jobs.open_shell(["env"]) == 1
    last = capfd.readouterr().err.splitlines()[-1]
    assert last.startswith("the connection to pod a-0-x on n ended: its host ended, was stopped, or does not answer")
    assert "`make status`" in last


def test_job_named_with_a_name_returns_that_job_of_the_stack() -> None:
    assert job_named(OUTPUTS, "b") == "b"
    with pytest.raises(StackNotFound, match="c: the stack has no such job; name one of a, b"):
        job_named(OUTPUTS, "c")


def test_job_named_without_a_name_requires_a_single_job() -> None:
    assert job_named(replace(OUTPUTS, jobs=("a",)), "") == "a"
    with pytest.raises(StackNotFound, match="the stack has several jobs; name one of a, b, as in `make exec JOB=a`"):
        job_named(OUTPUTS, "")


def test_kubectl_command_selects_context_namespace_and_pod() -> None:
    found = kubectl_command(OUTPUTS, HOST, ["env"])
    assert found[:5] == ["kubectl", "--context", "c", "--namespace", "training"]
    assert found[-3:] == ["a-0-x", "--", "env"]
