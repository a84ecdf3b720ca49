"""Operators and their dependencies, at the versions pinned in their Go modules, and their capacity on nodes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from infra.hardware import Capacity, node_share
from infra.operators.releases import RELEASES, REQUEST, left_for_jobs, needed_releases, system_reserved
from workloads import queues
from workloads.kinds import KINDS
from workloads.spec import JobSpec

MODULES = Path(__file__).parents[2] / "setup" / "go"
GIBIBYTE = 2**30
machines = st.builds(
    Capacity,
    millicores=st.integers(min_value=1000, max_value=256_000),
    memory=st.integers(min_value=4 * GIBIBYTE, max_value=1024 * GIBIBYTE),
)


def test_an_operator_comes_after_those_that_it_requires() -> None:
    assert [release.name for release in needed_releases({"trainer"})] == ["jobset", "trainer"]
    assert [release.name for release in needed_releases(["mpi-operator"])] == ["mpi-operator"]
    assert needed_releases([]) == []


def test_kueue_starts_after_those_whose_jobs_it_admits() -> None:
    names = [release.name for release in needed_releases({"kueue", "trainer"})]
    assert names == ["jobset", "trainer", "kueue"]
    assert [release.name for release in needed_releases({"kueue"})] == ["kueue"]
    order = list(RELEASES)
    for release in RELEASES.values():
        assert all(order.index(each) < order.index(release.name) for each in release.requires | release.follows)


def test_kueue_is_asked_about_every_kind_that_a_queue_admits() -> None:
    """A kind that it is called for and does not support would stay suspended."""
    configuration = yaml.safe_load(dict(RELEASES["kueue"].files)["/etc/kueue/configuration.yaml"])
    frameworks = {each.partition("/")[2] for each in configuration["integrations"]["frameworks"]}
    kinds = {kind.replace("-", "").removeprefix("indexed") for kind in KINDS if KINDS[kind].is_queueable}
    assert frameworks == kinds
    webhooks = RELEASES["kueue"].webhooks
    assert webhooks is not None
    assert {f"{each}s" for each in frameworks} == webhooks.others
    assert configuration["manageJobsWithoutQueueName"] is False


def test_kueue_evicts_no_job_whose_hosts_start_slowly() -> None:
    """By default it would after 30 minutes, even while a failed host is replaced."""
    configuration = yaml.safe_load(dict(RELEASES["kueue"].files)["/etc/kueue/configuration.yaml"])
    waits = configuration["waitForPodsReady"]
    deadline = JobSpec.model_json_schema()["properties"]["deadline_seconds"]
    (longest,) = (each["maximum"] for each in deadline["anyOf"] if "maximum" in each)
    assert int(waits["timeout"].removesuffix("h")) * 3600 >= longest
    assert waits["recoveryTimeout"] == "0s"


def test_kueues_configuration_and_queues_are_of_one_version() -> None:
    configuration = yaml.safe_load(dict(RELEASES["kueue"].files)["/etc/kueue/configuration.yaml"])
    assert configuration["apiVersion"] == f"config.{queues.API_VERSION}"


def test_an_unknown_operator_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match="volcano is not an operator; write one of training-operator, "):
        needed_releases({"volcano", "jobset"})


def test_every_kind_needs_operators_that_there_are() -> None:
    assert frozenset().union(*(kind.operators for kind in KINDS.values())) <= RELEASES.keys()


@pytest.mark.parametrize("name", RELEASES)
def test_the_program_is_of_the_release_whose_objects_are_installed(name: str) -> None:
    release = RELEASES[name]
    text = (MODULES / name / "go.mod").read_text(encoding="utf-8")
    found = re.search(rf"{re.escape(release.module)} (v\S+)", text)
    assert found is not None
    assert found[1] == release.version
    assert f"{release.module} {release.version} h1:" in (MODULES / name / "go.sum").read_text(encoding="utf-8")


def test_on_two_nodes_operators_take_nothing_from_the_jobs() -> None:
    machine = Capacity(millicores=2000, memory=8 * GIBIBYTE)
    assert left_for_jobs(machine, 2, len(RELEASES)) == node_share(machine, 2)
    offered = machine.millicores - system_reserved(machine, 2).millicores
    assert offered >= 1000 + len(RELEASES) * REQUEST.millicores


def test_on_one_node_operators_take_their_room_from_the_jobs() -> None:
    machine = Capacity(millicores=2000, memory=8 * GIBIBYTE)
    assert left_for_jobs(machine, 1, 0) == node_share(machine, 1)
    assert left_for_jobs(machine, 1, 2).millicores == 2000 - 2 * REQUEST.millicores


@given(machines, st.integers(1, 8), st.integers(0, len(RELEASES)))
def test_jobs_and_operators_never_ask_more_than_a_node_offers(machine: Capacity, nodes: int, operators: int) -> None:
    jobs = left_for_jobs(machine, nodes, operators)
    reserved = system_reserved(machine, nodes)
    assert jobs.millicores + operators * REQUEST.millicores <= machine.millicores - reserved.millicores
    assert jobs.memory + operators * REQUEST.memory <= machine.memory - reserved.memory
    assert jobs.millicores <= node_share(machine, nodes).millicores
