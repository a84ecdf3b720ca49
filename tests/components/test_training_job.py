"""The TrainingJob component: what it makes, that every key of a spec changes it, and one worker over all kinds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from pulumi.runtime import rpc

from infra.gcp.fabrics import GIB
from infra.operator_releases import RELEASES
from tests.golden.manifests import (
    ELASTIC,
    EVERY_KEY,
    GPU,
    ON_CLAIM,
    ON_GPUS,
    ON_OBJECT_STORE,
    SCRIPT,
    TPU,
    engine,
    manifests,
)
from workloads.kind_rules import RULES
from workloads.kinds import OPERATORS, RENDERERS
from workloads.kinds.indexed_job import backoff_limit
from workloads.kinds.parts import FINAL_EXIT_CODES
from workloads.needs import operators_of
from workloads.pod import Placement
from workloads.spec import JobKind, JobSpec, ResourcesSpec

KINDS: tuple[JobKind, ...] = get_args(JobKind)
TORCH_KINDS = [kind for kind in KINDS if RULES[kind].recipes]

CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "name": (EVERY_KEY, {"name": "other"}),
    "kind": (EVERY_KEY, {"kind": "jobset"}),
    "recipe": (EVERY_KEY, {"recipe": "digits"}),
    "script": (SCRIPT, {"script": "/other.py"}),
    "args": (SCRIPT, {"args": ("--other",)}),
    "torchrun": ({**SCRIPT, "processes_per_host": 1}, {"torchrun": False}),
    "accelerator": (EVERY_KEY, {"accelerator": "nvidia-l4"}),
    "topology": (TPU, {"topology": "2x4x4", "accelerator": "v4"}),
    "slices": ({**TPU, "kind": "jobset"}, {"slices": 3}),
    "accelerators_per_host": (GPU, {"accelerators_per_host": 4}),
    "elastic": (ELASTIC, {"elastic": {"min_hosts": 2, "max_hosts": 3}}),
    "hosts": (EVERY_KEY, {"hosts": 5}),
    "servers": ({**SCRIPT, "kind": "mx-job"}, {"servers": 3}),
    "processes_per_host": (EVERY_KEY, {"processes_per_host": 3}),
    "rendezvous": (EVERY_KEY, {"rendezvous": "c10d"}),
    "restarts": (EVERY_KEY, {"restarts": 7}),
    "resources": (EVERY_KEY, {"resources": {"cpu": 3, "memory": "30Gi"}}),
    "shared_memory": (EVERY_KEY, {"shared_memory": "7Gi"}),
    "flags": (EVERY_KEY, {"flags": {"other": 1}}),
    "environment": (EVERY_KEY, {"environment": {"OTHER": "1"}}),
    "secrets": (EVERY_KEY, {"secrets": {}}),
    "image": (EVERY_KEY, {"image": "example.com/other"}),
    "runtime": ({**EVERY_KEY, "image": None}, {"runtime": "xla"}),
    "least_link_gigabits": (EVERY_KEY, {"least_link_gigabits": 7}),
    "queue": (EVERY_KEY, {"queue": "other"}),
    "priority_class": (EVERY_KEY, {"priority_class": "other"}),
    "suspend": ({**EVERY_KEY, "queue": None}, {"suspend": True}),
    "interactive": (EVERY_KEY, {"interactive": True}),
    "deadline_seconds": (EVERY_KEY, {"deadline_seconds": 7}),
    "grace_seconds": (EVERY_KEY, {"grace_seconds": 7}),
}
"""For each key a job, and another value. `time_to_live` takes none."""


def spec(values: dict[str, Any] = EVERY_KEY, /, **changes: Any) -> JobSpec:
    """A job with every key set."""
    return JobSpec.model_validate({**values, **changes})


def main_object(
    values: dict[str, Any] = EVERY_KEY, placement: Placement = ON_CLAIM, /, **changes: Any
) -> dict[str, Any]:
    """The object that is the job."""
    kinds = ("Job", "PyTorchJob", "MPIJob", "MXJob", "JobSet", "TrainJob")
    return next(each for each in manifests(spec(values, **changes), placement) if each["kind"] in kinds)


def job(**changes: Any) -> dict[str, Any]:
    """The Job of a spec."""
    return main_object(EVERY_KEY, ON_CLAIM, **changes)


def pod_templates(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Every pod template in some objects of a job, by the path to it."""
    found: dict[str, dict[str, Any]] = {}

    def walk(value: Any, path: str) -> None:
        if isinstance(value, dict):
            if "containers" in value.get("spec", {}):
                found[path] = value
            for key, each in value.items():
                walk(each, f"{path}/{key}")
        elif isinstance(value, list):
            for index, each in enumerate(value):
                walk(each, f"{path}/{index}")

    for each in objects:
        walk(each, each["kind"])
    return found


def workers(values: dict[str, Any], placement: Placement = ON_CLAIM, **changes: Any) -> list[dict[str, Any]]:
    """The pod templates of a job's workers."""
    templates = pod_templates(manifests(spec(values, **changes), placement)).values()
    return [each for each in templates if each["metadata"]["labels"].get("app.kubernetes.io/component") == "worker"]


def test_every_kind_has_a_renderer_rules_and_operators() -> None:
    assert set(RENDERERS) == set(RULES) == set(OPERATORS) == set(KINDS)
    alone = {"queue": None}
    assert operators_of([spec(**alone)]) == frozenset()
    assert operators_of([spec(**alone), spec(kind="train-job", **alone)]) == {"trainer", "jobset"}
    assert operators_of([spec(**alone), spec(kind="jobset")]) == {"jobset", "kueue"}
    assert set(RELEASES) >= operators_of([spec(kind=kind) for kind in KINDS])


def test_every_key_is_tried() -> None:
    assert set(CHANGES) == set(JobSpec.model_fields) - {"time_to_live"}


@pytest.mark.parametrize("key", CHANGES)
def test_every_key_changes_what_is_made(key: str) -> None:
    values, change = CHANGES[key]
    placement = ON_GPUS if "accelerator" in {**values, **change} else ON_CLAIM
    assert manifests(spec(values, **change), placement) != manifests(spec(values), placement)


@pytest.mark.parametrize("key", ResourcesSpec.model_fields)
def test_every_resource_changes_what_is_made(key: str) -> None:
    resources = {**EVERY_KEY["resources"], key: {"cpu": 3, "memory": "30Gi"}[key]}
    assert manifests(spec(resources=resources), ON_CLAIM) != manifests(spec(), ON_CLAIM)


OF_THE_KIND = frozenset(
    {
        "PET_MAX_RESTARTS",
        "PET_NNODES",
        "PET_NODE_RANK",
        "PET_NPROC_PER_NODE",
        "PET_RDZV_BACKEND",
        "PET_RDZV_CONF",
        "PET_RDZV_ENDPOINT",
        "PET_RDZV_ID",
        "PET_SHUTDOWN_TIMEOUT",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE",
        "TRAINYARD_RETRYABLE_OFFSET",
    }
)
"""Variables that say how the hosts of a kind meet: the one thing in which kinds differ."""


def compared(kind: JobKind, values: dict[str, Any], placement: Placement) -> dict[str, Any]:
    """A worker of a kind, without what its operator asks to be so: names, how hosts meet, who restarts."""
    templates = workers(values, placement, kind=kind)
    (pod,) = [each for index, each in enumerate(templates) if each not in templates[:index]]
    (container,) = pod["spec"].pop("containers")
    pod["spec"].pop("restartPolicy", None)
    pod["spec"].pop("subdomain", None)
    pod["metadata"]["annotations"].pop("kubectl.kubernetes.io/default-container")
    container.pop("name")
    container["env"] = [each for each in container["env"] if each["name"] not in OF_THE_KIND]
    if kind == "mpi-job":
        objects = pod_templates(manifests(spec(values, kind=kind), placement))
        (launcher,) = next(each for path, each in objects.items() if "Launcher" in path)["spec"]["containers"]
        words = launcher["args"]
        program = words[len(words) - words[::-1].index("-x") + 1 :]
        container.pop("startupProbe")
        container |= {"command": program[:1], "args": program[1:]}
    return {"pod": pod, "container": container}


@pytest.mark.parametrize("values", [EVERY_KEY, SCRIPT, GPU], ids=["recipe", "script", "gpus"])
def test_one_spec_gives_the_same_worker_in_every_kind(values: dict[str, Any]) -> None:
    placement = ON_GPUS if "accelerator" in values else ON_CLAIM
    torch = [kind for kind in TORCH_KINDS if not (kind == "mpi-job" and "script" in values)]
    first = compared(torch[0], values, placement)
    for kind in torch[1:]:
        assert compared(kind, values, placement) == first, kind
    if "script" in values:
        direct = compared("mpi-job", values, placement)
        assert compared("mx-job", values, placement) == direct
        assert {**direct["container"], "command": None, "args": None} == {
            **first["container"],
            "command": None,
            "args": None,
        }


def test_programs_of_every_kind_start_from_their_hosts_profile() -> None:
    nodes = replace(ON_GPUS, profile=GIB, environment={"LD_LIBRARY_PATH": "/drivers"})
    values = {**EVERY_KEY, "image": None}
    first = compared("indexed-job", values, nodes)
    script = f'. {GIB.script} && exec "$@"'
    assert (first["container"]["command"], first["container"]["args"][:3]) == (["bash"], ["-c", script, "bash"])
    assert first["container"]["args"][3:6] == ["python", "-m", "trainer.launch"]
    for kind in TORCH_KINDS:
        assert compared(kind, values, nodes) == first, kind
    # mpirun hands on what its own pod has.
    for template in pod_templates(manifests(spec(values, kind="mpi-job"), nodes)).values():
        assert {"name": "LD_LIBRARY_PATH", "value": "/drivers"} in template["spec"]["containers"][0]["env"]


@pytest.mark.parametrize("kind", KINDS)
def test_pods_satisfy_the_restricted_standard(kind: JobKind) -> None:
    values = SCRIPT if kind == "mx-job" else EVERY_KEY
    for place, template in pod_templates(manifests(spec(values, kind=kind), ON_CLAIM)).items():
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True, place
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize("kind", KINDS)
def test_environment_names_are_unique(kind: JobKind) -> None:
    values = {**(SCRIPT if kind == "mx-job" else EVERY_KEY), "environment": {"HOME": "/bucket", "OMP_NUM_THREADS": "1"}}
    for template in pod_templates(manifests(spec(values, kind=kind), ON_CLAIM)).values():
        (container,) = template["spec"]["containers"]
        names = [variable["name"] for variable in container["env"]]
        assert len(names) == len(set(names))
        assert {"name": "HOME", "value": "/bucket"} in container["env"]


SET_BY_OPERATORS = {
    "pytorch-job": {"PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT"},
    "train-job": {"PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT"},
    "elastic": {"PET_NNODES", "PET_NPROC_PER_NODE", "PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID"}
    | {"PET_RDZV_CONF", "PET_MAX_RESTARTS"},
}
"""What the operators' code sets: pkg/controller.v1/pytorch/{envvar,elastic}.go, plugins/torch/torch.go."""


@pytest.mark.parametrize(
    ("kind", "values", "which"),
    [
        ("pytorch-job", EVERY_KEY, "pytorch-job"),
        ("train-job", EVERY_KEY, "train-job"),
        ("pytorch-job", ELASTIC, "elastic"),
    ],
)
def test_nothing_is_set_twice(kind: JobKind, values: dict[str, Any], which: str) -> None:
    for template in workers(values, kind=kind):
        names = {variable["name"] for variable in template["spec"]["containers"][0]["env"]}
        assert not names & SET_BY_OPERATORS[which]


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
    assert found["metadata"]["annotations"] == {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"}
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
    assert job(restarts=restarts, hosts=hosts)["spec"]["backoffLimit"] == limit


def test_exit_codes_are_as_the_api_server_wants_them() -> None:
    assert list(FINAL_EXIT_CODES) == sorted(set(FINAL_EXIT_CODES))
    assert 0 not in FINAL_EXIT_CODES


def test_an_object_store_needs_no_volume() -> None:
    objects = manifests(spec(), ON_OBJECT_STORE)
    (template,) = pod_templates(objects).values()
    names = {volume["name"] for volume in template["spec"]["volumes"]}
    assert names == {"dshm", "scratch"}
    (container,) = template["spec"]["containers"]
    assert {"name": "TRAINYARD_BUCKET", "value": "s3://team-checkpoints/runs"} in container["env"]


def test_accelerators_are_asked_by_workers_only() -> None:
    for kind in ("mpi-job", "mx-job"):
        objects = manifests(spec(GPU, kind=kind, accelerators_per_host=2), ON_GPUS)
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


def test_mpirun_waits_for_the_workers_of_a_job_that_was_suspended() -> None:
    """Kueue resumes launcher and workers at once; otherwise the operator makes the launcher when the workers answer."""

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
