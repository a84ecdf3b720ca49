"""Jobs that request more than the local nodes have are rejected. The message has the number of hosts that fit."""

from __future__ import annotations

from typing import Any

import pytest

from infra.hardware import Capacity
from settings.problem import Problem, dotted
from stack import validation
from stack.config import StackConfig, parse
from stack.placement import local_capacity_problems
from tests.problems import problems_of
from tests.unit.stack_settings import job


def local_problems(*jobs: dict[str, Any], nodes: int = 2) -> list[Problem]:
    """Return the problems of jobs on a machine with two CPUs and 8 GiB."""
    config = StackConfig.model_validate({"platform": {"kind": "local", "nodes": nodes}, "jobs": jobs}, strict=False)
    assert config.platform.kind == "local"
    return local_capacity_problems(config.jobs, config.cloud.nodes_here, Capacity(millicores=2000, memory=8 * 2**30))


def codes_and_paths(*jobs: dict[str, Any]) -> list[tuple[str, str]]:
    """Return code and path of each problem that `local_problems` returns for two nodes."""
    return [(each.code, dotted(each.path)) for each in local_problems(*jobs)]


def job_with(name: str, hosts: int, cpu: str) -> dict[str, Any]:
    """Return a job with hosts that each request these CPUs and 1 GiB."""
    return {"name": name, "recipe": "digits", "hosts": hosts, "resources": {"cpu": cpu, "memory": "1Gi"}}


def test_local_capacity_job_of_exact_size_is_accepted() -> None:
    assert local_problems(job_with("a", 2, "1")) == []


def test_local_capacity_too_many_hosts_suggests_number_that_fits() -> None:
    (problem,) = local_problems(job_with("a", 3, "1"))
    assert (problem.code, dotted(problem.path)) == ("capacity.local.hosts_too_many", "jobs[0].hosts")
    assert "write `hosts: 2` or less" in problem.message


def test_local_capacity_host_larger_than_node_is_rejected() -> None:
    assert codes_and_paths(job_with("a", 1, "2")) == [("capacity.local.host_too_large", "jobs[0].resources")]
    assert local_problems(job_with("a", 1, "2"), nodes=1) == []


def test_local_capacity_second_job_beyond_capacity_is_rejected() -> None:
    assert codes_and_paths(job_with("a", 2, "500m"), job_with("b", 2, "600m")) == [
        ("capacity.local.no_capacity_left", "jobs[1].hosts")
    ]


def test_local_capacity_depends_on_the_cpus_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "this_machine", lambda: Capacity(millicores=8000, memory=8 * 2**30))
    assert parse(job(resources={"cpu": 2})).jobs
    monkeypatch.setattr(validation, "this_machine", lambda: Capacity(millicores=2000, memory=8 * 2**30))
    assert problems_of(job(resources={"cpu": 2})) == [("capacity.local.host_too_large", "jobs.0.resources")]
    monkeypatch.undo()
    assert problems_of(job(resources={"cpu": 100_000})) == [("capacity.local.host_too_large", "jobs.0.resources")]


def test_local_capacity_counts_mpi_launcher() -> None:
    mpi = {**job_with("a", 2, "1"), "kind": "mpi-job"}
    assert codes_and_paths(mpi) == [("capacity.local.no_capacity_left", "jobs[0].kind")]
    assert local_problems({**mpi, "resources": {"cpu": "500m", "memory": "1Gi"}}) == []


def test_local_capacity_problem_path_is_the_setting_that_adds_the_pods() -> None:
    servers = {**job_with("a", 1, "100m"), "kind": "mx-job", "parameter_servers": 20}
    etcd = {**job_with("a", 2, "1"), "rendezvous": "etcd"}
    elastic = job_with("a", 1, "1") | {"elastic": {"min_hosts": 1, "max_hosts": 60}}
    del elastic["hosts"]
    assert [path for each in (servers, etcd, elastic) for _, path in codes_and_paths(each)] == [
        "jobs[0].parameter_servers",
        "jobs[0].rendezvous",
        "jobs[0].elastic.max_hosts",
    ]


def test_local_capacity_suspended_job_needs_to_fit_only_alone() -> None:
    assert local_problems(job_with("a", 2, "1"), {**job_with("b", 2, "1"), "suspend": True}) == []
    assert local_problems({**job_with("b", 2, "1"), "suspend": True}, job_with("a", 2, "1")) == []
    assert codes_and_paths({**job_with("b", 3, "1"), "suspend": True}) == [
        ("capacity.local.hosts_too_many", "jobs[0].hosts")
    ]
    assert codes_and_paths({**job_with("b", 2, "1"), "suspend": True, "kind": "mpi-job"}) == [
        ("capacity.local.no_capacity_left", "jobs[0].kind")
    ]
