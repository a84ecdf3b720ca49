"""The TrainingJob component: what it makes, and that every key of a spec changes it."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from tests.golden.manifests import EVERY_KEY, ON_CLAIM, ON_OBJECT_STORE, manifests
from workloads.kinds import RENDERERS
from workloads.kinds.indexed_job import FINAL_EXIT_CODES, backoff_limit
from workloads.spec import JobKind, JobSpec, ResourcesSpec

OTHER = {
    "name": "other",
    "recipe": "digits",
    "hosts": 5,
    "processes_per_host": 3,
    "restarts": 7,
    "resources": {"cpu": 3, "memory": "30Gi"},
    "shared_memory": "7Gi",
    "flags": {"other": 1},
    "environment": {"OTHER": "1"},
    "image": "example.com/other",
    "deadline_seconds": 7,
    "grace_seconds": 7,
}
"""Another value for each key of EVERY_KEY; `kind` has one value only, so far."""


def spec(**changes: Any) -> JobSpec:
    """A job with every key set."""
    return JobSpec.model_validate({**EVERY_KEY, **changes})


def job(**changes: Any) -> dict[str, Any]:
    """The Job of a spec."""
    return next(each for each in manifests(spec(**changes), ON_CLAIM) if each["kind"] == "Job")


def test_every_kind_has_a_renderer() -> None:
    assert set(RENDERERS) == set(get_args(JobKind))


def test_every_key_is_tried() -> None:
    assert set(EVERY_KEY) == set(JobSpec.model_fields)
    assert set(OTHER) == set(JobSpec.model_fields) - {"kind"}


@pytest.mark.parametrize("key", OTHER)
def test_every_key_changes_what_is_made(key: str) -> None:
    assert manifests(spec(**{key: OTHER[key]}), ON_CLAIM) != manifests(spec(), ON_CLAIM)


@pytest.mark.parametrize("key", ResourcesSpec.model_fields)
def test_every_resource_changes_what_is_made(key: str) -> None:
    resources = {**EVERY_KEY["resources"], key: OTHER["resources"][key]}  # type: ignore[dict-item, index]  # literals
    assert manifests(spec(resources=resources), ON_CLAIM) != manifests(spec(), ON_CLAIM)


def test_pods_satisfy_the_restricted_standard() -> None:
    pod = job()["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = pod["containers"]
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert pod["automountServiceAccountToken"] is False


def test_no_shell_and_no_rank_on_the_command_line() -> None:
    (container,) = job()["spec"]["template"]["spec"]["containers"]
    assert container["command"] == ["python"]
    assert container["args"][:5] == ["-m", "trainer.launch", "-m", "trainer", "imagenet"]


def test_the_service_selects_the_jobs_pods_and_names_them() -> None:
    service = next(each for each in manifests(spec(), ON_CLAIM) if each["kind"] == "Service")
    template = job()["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert service["metadata"]["name"] == template["spec"]["subdomain"]
    assert service["spec"]["publishNotReadyAddresses"] is True


def test_no_update_waits_for_the_end_of_training_and_every_replacement_for_the_end_of_the_old_job() -> None:
    awaiting = {each["kind"]: each["metadata"]["annotations"] for each in manifests(spec(), ON_CLAIM)}
    assert awaiting["Service"] == {"pulumi.com/skipAwait": "true"}
    assert awaiting["Job"] == {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"}


@pytest.mark.parametrize(("restarts", "hosts", "limit"), [(0, 4, 0), (1, 1, 1), (1, 2, 2), (3, 4, 12)])
def test_a_restart_costs_one_pod_a_host(restarts: int, hosts: int, limit: int) -> None:
    assert backoff_limit(spec(restarts=restarts, hosts=hosts)) == limit
    assert job(restarts=restarts, hosts=hosts)["spec"]["backoffLimit"] == limit


def test_exit_codes_are_as_the_api_server_wants_them() -> None:
    assert list(FINAL_EXIT_CODES) == sorted(set(FINAL_EXIT_CODES))
    assert 0 not in FINAL_EXIT_CODES


def test_an_object_store_needs_no_volume() -> None:
    (service, pods) = sorted(manifests(spec(), ON_OBJECT_STORE), key=lambda each: str(each["kind"]), reverse=True)
    assert service["kind"] == "Service"
    names = {volume["name"] for volume in pods["spec"]["template"]["spec"]["volumes"]}
    assert names == {"shared-memory", "scratch"}
    (container,) = pods["spec"]["template"]["spec"]["containers"]
    assert {"name": "TRAINYARD_BUCKET", "value": "s3://team-checkpoints/runs"} in container["env"]


def test_environment_names_are_unique() -> None:
    (container,) = job(environment={"HOME": "/bucket", "OMP_NUM_THREADS": "1"})["spec"]["template"]["spec"][
        "containers"
    ]
    names = [variable["name"] for variable in container["env"]]
    assert len(names) == len(set(names))
    assert {"name": "HOME", "value": "/bucket"} in container["env"]
