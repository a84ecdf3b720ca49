"""Objects of a job: their contents, and the changes that replace them."""

from __future__ import annotations

from typing import Any

import pytest
from pulumi.runtime import rpc

from tests.components.rendered_jobs import KINDS, TORCH_KINDS, job, main_object, pod_templates, spec, workers
from tests.golden.manifests import (
    ELASTIC,
    EVERY_KEY,
    GPU,
    ON_CLAIM,
    ON_GPUS,
    ON_OBJECT_STORE,
    SCRIPT,
    engine,
    manifests,
    queued,
)
from workloads.kinds.indexed_job import backoff_limit
from workloads.objects import FINAL_EXIT_CODES, LOST_EXIT_CODES
from workloads.spec import JobKind


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


@pytest.mark.parametrize("kind", KINDS)
def test_no_update_waits_for_the_end_of_training_and_every_replacement_for_the_end_of_the_old_job(
    kind: JobKind,
) -> None:
    found = main_object(SCRIPT, ON_CLAIM, kind=kind)
    annotations = {key: text for key, text in found["metadata"]["annotations"].items() if key.startswith("pulumi.com/")}
    assert annotations == {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"}
    service = next((each for each in manifests(spec(SCRIPT, kind=kind), ON_CLAIM) if each["kind"] == "Service"), None)
    if service is not None:
        assert service["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}


@pytest.mark.parametrize("kind", KINDS)
def test_queue_deadline_and_suspension_reach_every_kind(kind: JobKind) -> None:
    found = manifests(spec(SCRIPT, kind=kind), ON_CLAIM)
    assert [each["kind"] for each in found if "kueue.x-k8s.io/queue-name" in each["metadata"]["labels"]] == [
        main_object(SCRIPT, ON_CLAIM, kind=kind)["kind"]
    ]
    assert "'activeDeadlineSeconds': 86400" in str(found)
    assert "suspend" not in str(found)
    assert "'suspend': True" in str(main_object(SCRIPT, ON_CLAIM, kind=kind, suspend=True, queue=None))
    for template in pod_templates(found).values():
        assert template["spec"]["priorityClassName"] == "high"


@pytest.mark.parametrize(("restarts", "hosts", "limit"), [(0, 4, 0), (1, 1, 1), (1, 2, 2), (3, 4, 12)])
def test_a_restart_costs_one_pod_a_host(restarts: int, hosts: int, limit: int) -> None:
    assert backoff_limit(spec(restarts=restarts, hosts=hosts)) == limit
    found = job(restarts=restarts, hosts=hosts)["spec"]
    assert found["backoffLimit"] == limit
    assert (found["backoffLimitPerIndex"], found["maxFailedIndexes"]) == (restarts, 0)


def test_an_elastic_job_fails_when_fewer_hosts_than_train_are_left() -> None:
    found = job(elastic={"min_hosts": 2, "max_hosts": 5}, hosts=5, restarts=3)["spec"]
    assert (found["backoffLimitPerIndex"], found["maxFailedIndexes"]) == (3, 3)


def test_a_launcher_that_ends_by_itself_ends_the_job() -> None:
    (_, final) = job(restarts=1)["spec"]["podFailurePolicy"]["rules"]
    assert final["action"] == "FailJob"
    assert (final["onExitCodes"]["operator"], final["onExitCodes"]["values"]) == ("NotIn", list(LOST_EXIT_CODES))
    (_, final) = job(restarts=0)["spec"]["podFailurePolicy"]["rules"]
    assert (final["onExitCodes"]["operator"], final["onExitCodes"]["values"]) == ("In", list(FINAL_EXIT_CODES))


def test_exit_codes_are_as_the_api_server_wants_them() -> None:
    for codes in (FINAL_EXIT_CODES, LOST_EXIT_CODES):
        assert list(codes) == sorted(set(codes))
        assert 0 not in codes


def test_an_object_store_needs_no_volume() -> None:
    objects = manifests(spec(), ON_OBJECT_STORE)
    (template,) = pod_templates(objects).values()
    names = {volume["name"] for volume in template["spec"]["volumes"]}
    assert names == {"dshm", "scratch"}
    (container,) = template["spec"]["containers"]
    assert {"name": "TRAINYARD_BUCKET", "value": "s3://team-checkpoints/runs"} in container["env"]


def test_accelerators_are_asked_by_workers_only() -> None:
    for kind in KINDS:
        objects = manifests(spec(queued(GPU, kind), accelerators_per_host=2), ON_GPUS)
        for template in pod_templates(objects).values():
            limits = template["spec"]["containers"][0]["resources"]["limits"]
            is_worker = template["metadata"]["labels"]["app.kubernetes.io/component"] == "worker"
            assert limits.get("nvidia.com/gpu") == ("2" if is_worker else None)
            assert ("nodeSelector" in template["spec"]) == is_worker


def test_secrets_travel_through_a_secret_alone() -> None:
    objects = manifests(spec(), ON_CLAIM)
    (secret,) = [each for each in objects if each["kind"] == "Secret"]
    assert rpc._special_secret_sig in str(engine(spec(), ON_CLAIM).of_type(":Secret"))
    assert secret["stringData"] == {"WANDB_API_KEY": "canary"}
    assert "canary" not in str([each for each in objects if each is not secret])
    (template,) = pod_templates(objects).values()
    reference = {"name": secret["metadata"]["name"], "key": "WANDB_API_KEY"}
    assert {"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": reference}} in template["spec"]["containers"][0][
        "env"
    ]


def test_idle_hosts_are_the_same_but_for_what_they_run() -> None:
    for kind in TORCH_KINDS:
        busy, idle = (workers(EVERY_KEY, kind=kind, interactive=interactive) for interactive in (False, True))
        for one, other in zip(busy, idle, strict=True):
            if kind != "mpi-job":
                assert one["spec"]["containers"][0].pop("args") != other["spec"]["containers"][0].pop("args")
            assert one == other


def test_an_etcd_of_the_jobs_own() -> None:
    objects = manifests(spec(ELASTIC, rendezvous="etcd"), ON_CLAIM)
    deployment = next(each for each in objects if each["kind"] == "Deployment")
    service = next(each for each in objects if each["metadata"]["name"] == "elastic-etcd" and each["kind"] == "Service")
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert "trainyard.dev/job" not in labels
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert "--enable-v2=true" in container["args"]
    (host,) = workers(ELASTIC, kind="indexed-job")
    assert deployment["spec"]["template"]["spec"]["tolerations"] == host["spec"]["tolerations"]


def test_mpirun_waits_for_the_workers_of_a_job_that_was_suspended() -> None:
    """Kueue resumes launcher and workers at once. Otherwise the operator creates the launcher when the workers
    answer."""

    def launcher(**changes: Any) -> list[str]:
        replica = main_object(SCRIPT, ON_CLAIM, kind="mpi-job", **changes)["spec"]["mpiReplicaSpecs"]["Launcher"]
        (container,) = replica["template"]["spec"]["containers"]
        return [*container["command"], *container["args"]]

    waiting, at_once = launcher(), launcher(queue=None)
    assert at_once[0] == "mpirun"
    assert waiting[-len(at_once) :] == at_once
    assert "until ssh" in " ".join(waiting[: -len(at_once)])


def test_a_train_jobs_runtime_is_its_own() -> None:
    runtime, train_job = (
        next(each for each in manifests(spec(kind="train-job"), ON_CLAIM) if each["kind"] == kind)
        for kind in ("TrainingRuntime", "TrainJob")
    )
    assert "name" not in runtime["metadata"]
    assert train_job["spec"]["runtimeRef"]["name"] == "resnet-runtime-auto"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "indexed-job"])
def test_a_job_of_an_operator_is_made_again_when_what_it_runs_changes(kind: JobKind) -> None:
    registered = engine(spec(SCRIPT, kind=kind), ON_CLAIM).requests["resnet-job"]
    paths = set(registered.replaceOnChanges)
    assert paths
    assert not paths & {"spec.suspend", "spec.runPolicy"}
    assert paths | {"spec.suspend", "spec.runPolicy"} >= {
        f"spec.{key}" for key in main_object(SCRIPT, ON_CLAIM, kind=kind)["spec"]
    }
    assert registered.deleteBeforeReplace


def test_a_changed_runtime_gets_another_name_before_the_old_one_goes() -> None:
    registered = engine(spec(kind="train-job"), ON_CLAIM).requests["resnet-runtime"]
    assert registered.replaceOnChanges == ["spec"]
    assert not registered.deleteBeforeReplace
