"""Queues component, and the program with queues: objects of each pool, their order, and existing clusters."""

from __future__ import annotations

from typing import Any

import pytest

from settings.kubernetes_values import parse_cpu, parse_memory
from tests.components.test_program import JOBS, LOCAL, program
from tests.golden.manifests import POOLS, queues_engine
from tests.recording import RecordingEngine
from workloads.queues import resource_group

pytestmark = pytest.mark.usefixtures("operator_objects")

QUEUED = {**JOBS[0], "queue": "research"}


def quotas(engine: RecordingEngine) -> dict[str, str]:
    """Return the quotas of a ClusterQueue's only flavor."""
    (queue,) = engine.of_type(":ClusterQueue")
    ((flavor,),) = [each["flavors"] for each in queue.inputs["spec"]["resourceGroups"]]
    return {each["name"]: each["nominalQuota"] for each in flavor["resources"]}


def test_queue_resource_group_has_quota_of_every_resource() -> None:
    group = resource_group(POOLS)
    assert group.covered_resources == ("cpu", "memory", "nvidia.com/gpu")
    amounts = {each.name: [quota.nominal_quota for quota in each.resources] for each in group.flavors}
    assert amounts == {
        "system": ["3800m", "13Gi", "0"],
        "gpus": ["7500m", "25Gi", "4"],
        "later": ["400", "3600Gi", "16"],
    }


def test_queues_depend_on_flavors_and_checks() -> None:
    engine = queues_engine()
    flavors = {"queues-system-flavor", "queues-gpus-flavor", "queues-later-flavor"}
    assert engine.dependencies("queues-cluster-queue") >= {*flavors, "queues-nodes-check"}
    for name in ("queues-research", "queues-nightly"):
        assert "queues-cluster-queue" in engine.dependencies(name)


def test_queue_admission_check_applies_to_nodes_on_request() -> None:
    engine = queues_engine()
    (queue,) = engine.of_type(":ClusterQueue")
    (check,) = engine.of_type(":AdmissionCheck")
    (config,) = engine.of_type(":ProvisioningRequestConfig")
    assert queue.inputs["spec"]["admissionChecksStrategy"]["admissionChecks"] == [
        {"name": check.inputs["metadata"]["name"], "onFlavors": ["later"]}
    ]
    assert check.inputs["spec"]["parameters"]["name"] == config.inputs["metadata"]["name"]
    assert "queues-nodes-config" in engine.dependencies("queues-nodes-check")


def test_queue_without_nodes_on_request_has_no_admission_check() -> None:
    engine, _ = program(LOCAL, [QUEUED])
    assert engine.of_type(":AdmissionCheck") == []
    (queue,) = engine.of_type(":ClusterQueue")
    assert "admissionChecksStrategy" not in queue.inputs["spec"]


def test_queued_job_depends_on_queue_and_kueue() -> None:
    engine, _ = program(LOCAL, [QUEUED, {**JOBS[0], "name": "plain"}])
    assert "operators-kueue-controller" in engine.dependencies("queues-nodes-flavor")
    assert "queues-research" in engine.dependencies("digits-job")
    assert not any("queues" in each or "kueue" in each for each in engine.dependencies("plain-job"))
    assert [each.inputs["metadata"]["namespace"] for each in engine.of_type(":LocalQueue")] == ["training"]


def test_queue_quota_excludes_jobs_without_queue() -> None:
    alone, _ = program(LOCAL, [QUEUED])
    with_plain, _ = program(
        LOCAL, [QUEUED, {**JOBS[0], "name": "plain", "resources": {"cpu": "200m", "memory": "1Gi"}}]
    )
    one, other = quotas(alone), quotas(with_plain)
    assert parse_cpu(one["cpu"]) - parse_cpu(other["cpu"]) == 200
    assert parse_memory(one["memory"]) - parse_memory(other["memory"]) == 2**30


@pytest.mark.parametrize("operators", ["install", "present"])
def test_queued_job_on_existing_cluster_has_label_only(operators: str, existing_cluster: dict[str, Any]) -> None:
    engine, _ = program({**existing_cluster, "operators": operators}, [QUEUED])
    assert not any("kueue" in each.name or each.name.startswith("queues") for each in engine.records)
    (job,) = engine.of_type(":Job")
    assert job.inputs["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"


@pytest.mark.parametrize("kind", ["indexed-job", "jobset"])
def test_queued_job_with_new_queue_is_replaced(kind: str) -> None:
    engine, _ = program(LOCAL, [{**QUEUED, "kind": kind}])
    assert 'metadata.labels["kueue.x-k8s.io/queue-name"]' in engine.requests["digits-job"].replaceOnChanges
