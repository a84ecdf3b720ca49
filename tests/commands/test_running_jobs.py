"""Pools with running jobs, from the API server's own objects."""

from __future__ import annotations

from typing import Any

from commands.preview import jobs_by_pool
from infra.naming import JOB_LABEL, POOL_LABEL


def pod(job: str, node: str | None, phase: str = "Running") -> dict[str, Any]:
    spec = {"nodeName": node} if node else {}
    return {"metadata": {"labels": {JOB_LABEL: job}}, "spec": spec, "status": {"phase": phase}}


def node(name: str, pool: str | None) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {POOL_LABEL: pool} if pool else {}}}


NODES = [node("a", "gpus"), node("b", "gpus"), node("c", "tpus"), node("d", None)]


def test_jobs_are_on_the_pools_of_their_nodes() -> None:
    pods = [pod("digits", "a"), pod("digits", "b"), pod("more", "b", "Pending"), pod("spmd", "c")]
    assert jobs_by_pool(pods, NODES) == {"gpus": ["digits", "more"], "tpus": ["spmd"]}


def test_what_is_over_waiting_or_elsewhere_guards_no_pool() -> None:
    pods = [pod("done", "a", "Succeeded"), pod("lost", "a", "Failed"), pod("waits", None, "Pending"), pod("x", "d")]
    assert jobs_by_pool(pods, NODES) == {}
