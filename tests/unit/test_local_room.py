"""Jobs that request more than this machine's nodes have are rejected, with the capacity that fits."""

from __future__ import annotations

from typing import Any

from infra.hardware import Capacity
from stack.config import StackConfig
from stack.placement import shortage
from tests.unit.refused import (
    job,
    refusals,
)


def room(*jobs: dict[str, Any], nodes: int = 2) -> list[str]:
    """Return the errors of jobs on two CPUs and 8 GiB."""
    config = StackConfig.model_validate({"platform": {"kind": "local", "nodes": nodes}, "jobs": jobs}, strict=False)
    assert config.platform.kind == "local"
    found = shortage(config.jobs, config.cloud.nodes_here, Capacity(millicores=2000, memory=8 * 2**30))
    return [str(problem) for problem in found]


def asking(name: str, hosts: int, cpu: str) -> dict[str, Any]:
    """Return a job with these requests."""
    return {"name": name, "recipe": "digits", "hosts": hosts, "resources": {"cpu": cpu, "memory": "1Gi"}}


def test_a_job_that_fits_exactly() -> None:
    assert room(asking("a", 2, "1")) == []


def test_too_many_hosts_says_how_many_fit() -> None:
    (line,) = room(asking("a", 3, "1"))
    assert line.startswith(
        "trainyard:jobs[0].hosts = 3: 3 hosts of 1 CPU and 1Gi each do not fit: 2 nodes offer 1 CPU and"
    )
    assert line.endswith("room for 2; write `hosts: 2` or less, or ask for less")


def test_a_host_larger_than_a_node() -> None:
    (line,) = room(asking("a", 1, "2"))
    assert line.startswith("trainyard:jobs[0].resources = ")
    assert "no node has room for a host of" in line
    assert line.endswith("ask for less")
    assert room(asking("a", 1, "2"), nodes=1) == []


def test_jobs_that_do_not_fit_together() -> None:
    (line,) = room(asking("a", 2, "500m"), asking("b", 2, "600m"))
    assert line.startswith("trainyard:jobs[1].hosts = 2:")
    assert "beside the jobs above" in line


def test_this_machine_is_asked() -> None:
    (line,) = refusals(job(resources={"cpu": 100_000}))
    assert "no node has room" in line


def test_what_an_operator_runs_beside_the_hosts_needs_room_too() -> None:
    mpi = {**asking("a", 2, "1"), "kind": "mpi-job"}
    (line,) = room(mpi)
    assert line.startswith(
        'trainyard:jobs[0].kind = "mpi-job": its launcher of 250m CPU and 512Mi does not fit beside '
    )
    assert "the job's hosts: 2 nodes offer" in line
    assert room({**mpi, "resources": {"cpu": "500m", "memory": "1Gi"}}) == []


def test_each_part_of_a_job_is_called_what_it_is() -> None:
    (servers,) = room({**asking("a", 1, "100m"), "kind": "mx-job", "parameter_servers": 20})
    assert servers.startswith(
        "trainyard:jobs[0].parameter_servers = 20: 20 parameter servers of 100m CPU and 1Gi each do not fit"
    )
    assert servers.endswith("; write less, or ask for less")
    (etcd,) = room({**asking("a", 2, "1"), "rendezvous": "etcd"})
    assert etcd.startswith('trainyard:jobs[0].rendezvous = "etcd": its etcd of 250m CPU and 512Mi does not fit beside')
    elastic = asking("a", 1, "1") | {"elastic": {"min_hosts": 1, "max_hosts": 60}}
    del elastic["hosts"]
    (line,) = room(elastic)
    assert line.startswith("trainyard:jobs[0].elastic.max_hosts = 60: 60 hosts of 1 CPU")
    assert line.endswith("write `max_hosts: 2` or less, or ask for less")


def test_a_suspended_job_needs_room_by_itself() -> None:
    assert room(asking("a", 2, "1"), {**asking("b", 2, "1"), "suspend": True}) == []
    assert room({**asking("b", 2, "1"), "suspend": True}, asking("a", 2, "1")) == []
    (line,) = room({**asking("b", 3, "1"), "suspend": True})
    assert "hosts = 3" in line
    (line,) = room({**asking("b", 2, "1"), "suspend": True, "kind": "mpi-job"})
    assert "its launcher" in line
