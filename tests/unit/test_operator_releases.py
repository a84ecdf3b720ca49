"""Releases of operators: their order, Kueue's configuration, Go modules, and the capacity that they leave for jobs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from infra.hardware import Capacity, node_share
from infra.operator_releases import OPERATOR_REQUEST, RELEASES, left_for_jobs, needed_releases, system_reserved
from workloads import queues
from workloads.kinds import KINDS
from workloads.spec import JobSpec

GO_MODULES = Path(__file__).parents[2] / "setup" / "go"
GIB = 2**30
machines = st.builds(
    Capacity,
    millicores=st.integers(min_value=1000, max_value=256_000),
    memory=st.integers(min_value=4 * GIB, max_value=1024 * GIB),
)


def test_needed_releases_include_requirements_first() -> None:
    assert [release.name for release in needed_releases({"trainer"})] == ["jobset", "trainer"]
    assert [release.name for release in needed_releases(["mpi-operator"])] == ["mpi-operator"]
    assert needed_releases([]) == []


def test_needed_releases_kueue_comes_last() -> None:
    names = [release.name for release in needed_releases({"kueue", "trainer"})]
    assert names == ["jobset", "trainer", "kueue"]
    assert [release.name for release in needed_releases({"kueue"})] == ["kueue"]


def test_releases_are_listed_after_releases_that_they_require_or_follow() -> None:
    order = list(RELEASES)
    for release in RELEASES.values():
        assert all(order.index(each) < order.index(release.name) for each in release.requires | release.follows)


def kueue_configuration() -> dict[str, Any]:
    """Return the content of Kueue's configuration file."""
    found: dict[str, Any] = yaml.safe_load(dict(RELEASES["kueue"].files)["/etc/kueue/configuration.yaml"])
    return found


def test_kueue_frameworks_equal_queueable_kinds() -> None:
    # A job of a kind that Kueue does not support would stay suspended.
    frameworks = {each.partition("/")[2] for each in kueue_configuration()["integrations"]["frameworks"]}
    resources = [kind.resource for kind in KINDS.values() if kind.is_queueable]
    kinds = {each.kind.lower() if each else "job" for each in resources}
    assert frameworks == kinds, "add the kind to QUEUED_KINDS, or set `is_queueable` of the kind to False"
    webhooks = RELEASES["kueue"].webhooks
    assert webhooks is not None
    assert {each.plural if each else "jobs" for each in resources} == webhooks.others
    assert kueue_configuration()["manageJobsWithoutQueueName"] is False


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.resource])
def test_operators_have_permissions_on_the_resource_of_a_kind(name: str) -> None:
    resource = KINDS[name].resource
    assert resource
    plural = resource.plural
    operators = [each for each in RELEASES.values() if any(f"_{plural}." in path for path in each.definitions)]
    assert operators, "no operator installs the CRD of this kind"
    operators += [RELEASES["kueue"]] if KINDS[name].is_queueable else []
    wrong = [each.name for each in operators if any(part.partition("/")[0] == plural for part in each.unneeded)]
    assert wrong == [], f"remove {plural} from `unneeded` of these operators"


def test_kueue_timeout_covers_longest_deadline() -> None:
    # By default, Kueue evicts a job whose pods are not ready after 30 minutes, even during a host's replacement.
    waits = kueue_configuration()["waitForPodsReady"]
    deadline = JobSpec.model_json_schema()["properties"]["deadline_seconds"]
    (longest,) = (each["maximum"] for each in deadline["anyOf"] if "maximum" in each)
    assert int(waits["timeout"].removesuffix("h")) * 3600 >= longest
    assert waits["recoveryTimeout"] == "0s"


def test_kueue_configuration_and_queues_have_one_version() -> None:
    assert kueue_configuration()["apiVersion"] == f"config.{queues.API_VERSION}"


def test_needed_releases_of_unknown_operator_raises() -> None:
    with pytest.raises(ValueError, match="no-such-operator"):
        needed_releases({"no-such-operator", "jobset"})


@pytest.mark.parametrize("name", RELEASES)
def test_go_module_of_operator_has_version_of_its_release(name: str) -> None:
    release = RELEASES[name]
    remedy = f"run `go get -tool PACKAGE@{release.version}` in setup/go/{name}; see docs/extending.md"
    files = [GO_MODULES / name / file for file in ("go.mod", "go.sum")]
    assert all(file.is_file() for file in files), remedy
    module, checksums = (file.read_text(encoding="utf-8") for file in files)
    found = re.search(rf"{re.escape(release.module)} (v\S+)", module)
    assert found is not None, remedy
    assert found[1] == release.version, remedy
    assert f"{release.module} {release.version} h1:" in checksums, remedy


def test_left_for_jobs_on_two_nodes_is_whole_share() -> None:
    machine = Capacity(millicores=2000, memory=8 * GIB)
    share = node_share(machine, 2)
    assert left_for_jobs(machine, 2, len(RELEASES)) == share
    allocatable = machine.millicores - system_reserved(machine, 2).millicores
    assert allocatable >= share.millicores + len(RELEASES) * OPERATOR_REQUEST.millicores


def test_left_for_jobs_on_one_node_excludes_operators() -> None:
    machine = Capacity(millicores=2000, memory=8 * GIB)
    assert left_for_jobs(machine, 1, 0) == node_share(machine, 1)
    assert left_for_jobs(machine, 1, 2).millicores == 2000 - 2 * OPERATOR_REQUEST.millicores


@given(machines, st.integers(1, 8), st.integers(0, len(RELEASES)))
def test_left_for_jobs_with_operators_is_within_node(machine: Capacity, nodes: int, operators: int) -> None:
    jobs = left_for_jobs(machine, nodes, operators)
    reserved = system_reserved(machine, nodes)
    assert jobs.millicores + operators * OPERATOR_REQUEST.millicores <= machine.millicores - reserved.millicores
    assert jobs.memory + operators * OPERATOR_REQUEST.memory <= machine.memory - reserved.memory
    assert jobs.millicores <= node_share(machine, nodes).millicores
