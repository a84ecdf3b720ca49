"""Jobs that request more than this machine's nodes have are rejected, with the capacity that fits."""

from __future__ import annotations

from typing import Any

from infra.hardware import Capacity
from settings.problem import Problem, dotted
from stack.config import StackConfig
from stack.placement import local_capacity_problems
from tests.problems import refused
from tests.unit.refused import job


def room(*jobs: dict[str, Any], nodes: int = 2) -> list[Problem]:
    """Return the problems of jobs on two CPUs and 8 GiB."""
    config = StackConfig.model_validate({"platform": {"kind": "local", "nodes": nodes}, "jobs": jobs}, strict=False)
    assert config.platform.kind == "local"
    return local_capacity_problems(config.jobs, config.cloud.nodes_here, Capacity(millicores=2000, memory=8 * 2**30))


def codes(*jobs: dict[str, Any], nodes: int = 2) -> list[tuple[str, str]]:
    """Return code and path of the problems."""
    return [(each.code, dotted(each.path)) for each in room(*jobs, nodes=nodes)]


def asking(name: str, hosts: int, cpu: str) -> dict[str, Any]:
    """Return a job with these requests."""
    return {"name": name, "recipe": "digits", "hosts": hosts, "resources": {"cpu": cpu, "memory": "1Gi"}}


def test_a_job_that_fits_exactly() -> None:
    assert room(asking("a", 2, "1")) == []


def test_too_many_hosts_says_how_many_fit() -> None:
    (line,) = room(asking("a", 3, "1"))
    assert str(line).startswith(
        "trainyard:jobs[0].hosts = 3: 3 hosts of 1 CPU and 1Gi each do not fit: 2 nodes offer 1 CPU and"
    )
    assert line.message.endswith("enough for 2; write `hosts: 2` or less, or request less per host")


def test_a_host_larger_than_a_node() -> None:
    assert codes(asking("a", 1, "2")) == [("capacity.local.host_too_large", "jobs[0].resources")]
    assert room(asking("a", 1, "2"), nodes=1) == []


def test_jobs_that_do_not_fit_together() -> None:
    assert codes(asking("a", 2, "500m"), asking("b", 2, "600m")) == [("capacity.local.no_room_beside", "jobs[1].hosts")]


def test_this_machine_is_asked() -> None:
    assert refused(job(resources={"cpu": 100_000})) == [("capacity.local.host_too_large", "jobs.0.resources")]


def test_what_an_operator_runs_beside_the_hosts_needs_room_too() -> None:
    mpi = {**asking("a", 2, "1"), "kind": "mpi-job"}
    assert codes(mpi) == [("capacity.local.no_room_beside", "jobs[0].kind")]
    assert room({**mpi, "resources": {"cpu": "500m", "memory": "1Gi"}}) == []


def test_each_part_of_a_job_is_called_what_it_is() -> None:
    (servers,) = room({**asking("a", 1, "100m"), "kind": "mx-job", "parameter_servers": 20})
    assert servers.message.startswith("20 parameter servers of 100m CPU and 1Gi each do not fit")
    assert codes({**asking("a", 2, "1"), "rendezvous": "etcd"}) == [
        ("capacity.local.no_room_beside", "jobs[0].rendezvous")
    ]
    elastic = asking("a", 1, "1") | {"elastic": {"min_hosts": 1, "max_hosts": 60}}
    del elastic["hosts"]
    (line,) = room(elastic)
    assert line.path == ("jobs", 0, "elastic", "max_hosts")
    assert line.message.endswith("write `max_hosts: 2` or less, or request less per host")


def test_a_suspended_job_needs_room_by_itself() -> None:
    assert room(asking("a", 2, "1"), {**asking("b", 2, "1"), "suspend": True}) == []
    assert room({**asking("b", 2, "1"), "suspend": True}, asking("a", 2, "1")) == []
    assert codes({**asking("b", 3, "1"), "suspend": True}) == [("capacity.local.hosts_too_many", "jobs[0].hosts")]
    assert codes({**asking("b", 2, "1"), "suspend": True, "kind": "mpi-job"}) == [
        ("capacity.local.no_room_beside", "jobs[0].kind")
    ]
