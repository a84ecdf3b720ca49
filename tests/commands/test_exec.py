"""Selection of the pod and the command of `make exec`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from commands.jobs import kubectl_command, pod_of
from commands.monitor.cluster import StackNotFound, StackOutputs, job_named
from commands.monitor.pod_state import PodState

OUTPUTS = StackOutputs(kubeconfig_path="/k", namespace="training", jobs=("a", "b"), context="c")
HOST = PodState(uid="0", name="a-0-x", job="a", index=0, processes=2, node="n", state="running")
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
    assert pod_of(PODS, rank).name == name


@pytest.mark.parametrize("rank", ["4", "7", "x"])
def test_pod_of_a_rank_that_does_not_run_lists_the_running_ranks(rank: str) -> None:
    with pytest.raises(
        StackNotFound, match=f"RANK={rank}: no pod of this rank is running; running: 0-1, 2-3, launcher"
    ):
        pod_of(PODS, rank)


def test_job_named_without_a_name_requires_a_single_job() -> None:
    assert job_named(OUTPUTS, "b") == "b"
    assert job_named(replace(OUTPUTS, jobs=("a",)), "") == "a"
    with pytest.raises(StackNotFound, match="the stack has several jobs; name one of a, b, as in `make exec JOB=a`"):
        job_named(OUTPUTS, "")
    with pytest.raises(StackNotFound, match="c: the stack has no such job; name one of a, b"):
        job_named(OUTPUTS, "c")


def test_kubectl_command_selects_context_namespace_and_pod() -> None:
    found = kubectl_command(OUTPUTS, HOST, ["env"])
    assert found[:5] == ["kubectl", "--context", "c", "--namespace", "training"]
    assert found[-3:] == ["a-0-x", "--", "env"]
