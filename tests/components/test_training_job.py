"""TrainingJob component: objects of every kind, equal workers, restarts, secrets, replacements, user scripts."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pulumi.runtime import rpc

from infra.gcp.pools import GIB_PLUGIN
from infra.project import PROJECT_VARIABLE
from tests.components.rendered_jobs import KINDS, TORCH_KINDS, job, main_object, pod_templates, spec, values_of, workers
from tests.golden.manifests import (
    ELASTIC,
    EVERY_KEY,
    GPU,
    ON_CLAIM,
    ON_GPUS,
    ON_TPUS,
    SCRIPT,
    engine,
    manifests,
    queued,
)
from tests.problems import problems_of
from tests.recording import run
from workloads.job import TrainingJob, TrainingJobArgs
from workloads.kinds import KINDS as ALL_KINDS
from workloads.kinds import operators_of
from workloads.kinds.indexed_job import backoff_limit
from workloads.kinds.mpi_job import WAIT_FOR_WORKERS
from workloads.objects import LOST_LAUNCHER_EXIT_CODES, NON_RETRYABLE_EXIT_CODES, Placement
from workloads.spec import JobKind, JobSpec


def test_operators_of_jobs_depend_on_kinds_and_queues() -> None:
    alone = {"queue": None}
    assert operators_of([spec(**alone)]) == frozenset()
    assert operators_of([spec(**alone), spec(kind="train-job", **alone)]) == {"trainer", "jobset"}
    assert operators_of([spec(**alone), spec(kind="jobset")]) == {"jobset", "kueue"}


KIND_VARIABLES = frozenset(
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
"""Variables of rendezvous and restarts, whose values depend on the kind."""


def comparable_worker(kind: JobKind, values: dict[str, Any], placement: Placement) -> dict[str, Any]:
    """Return the worker of a kind without the parts that differ between kinds: names, rendezvous, restarts."""
    templates = workers(values, placement, kind=kind)
    (pod,) = [each for index, each in enumerate(templates) if each not in templates[:index]]
    (container,) = pod["spec"].pop("containers")
    pod["spec"].pop("restartPolicy", None)
    pod["spec"].pop("subdomain", None)
    pod["spec"].pop("activeDeadlineSeconds", None)
    pod["metadata"]["annotations"].pop("kubectl.kubernetes.io/default-container")
    container.pop("name")
    container["env"] = [each for each in container["env"] if each["name"] not in KIND_VARIABLES]
    if kind == "mpi-job":
        objects = pod_templates(manifests(spec(values, kind=kind), placement))
        (launcher,) = next(each for path, each in objects.items() if "Launcher" in path)["spec"]["containers"]
        words = launcher["args"]
        # The program follows the last `-x VARIABLE`.
        program = words[len(words) - words[::-1].index("-x") + 1 :]
        container.pop("startupProbe")
        container |= {"command": program[:1], "args": program[1:]}
    return {"pod": pod, "container": container}


@pytest.mark.parametrize("values", [EVERY_KEY, SCRIPT, GPU], ids=["recipe", "script", "gpus"])
def test_job_worker_is_equal_in_every_kind(values: dict[str, Any]) -> None:
    placement = ON_GPUS if "accelerator" in values else ON_CLAIM
    torch = [kind for kind in TORCH_KINDS if not (kind == "mpi-job" and "script" in values)]
    first = comparable_worker(torch[0], values, placement)
    for kind in torch[1:]:
        assert comparable_worker(kind, values, placement) == first, kind
    if "script" in values:
        without_torchrun = comparable_worker("mpi-job", values, placement)
        assert comparable_worker("mx-job", values, placement) == without_torchrun
        for found in (without_torchrun, first):
            found["container"] |= {"command": None, "args": None}
        assert without_torchrun["container"] == first["container"]


def test_job_sources_nccl_environment_script_in_every_kind() -> None:
    nodes = replace(
        ON_GPUS,
        scheduling=replace(
            ON_GPUS.scheduling, nccl_environment=GIB_PLUGIN, environment={"LD_LIBRARY_PATH": "/drivers"}
        ),
    )
    values = {**EVERY_KEY, "image": None}
    first = comparable_worker("indexed-job", values, nodes)
    script = f'. {GIB_PLUGIN.script} && exec "$@"'
    assert (first["container"]["command"], first["container"]["args"][:3]) == (["bash"], ["-c", script, "bash"])
    assert first["container"]["args"][3:6] == ["python", "-m", "trainer.launch"]
    for kind in TORCH_KINDS:
        assert comparable_worker(kind, values, nodes) == first, kind
    # mpirun passes on the variables of its own pod.
    for template in pod_templates(manifests(spec(values, kind="mpi-job"), nodes)).values():
        assert {"name": "LD_LIBRARY_PATH", "value": "/drivers"} in template["spec"]["containers"][0]["env"]


@pytest.mark.parametrize("kind", KINDS)
def test_job_pods_satisfy_restricted_standard(kind: JobKind) -> None:
    for place, template in pod_templates(manifests(spec(values_of(kind), kind=kind), ON_CLAIM)).items():
        pod = template["spec"]
        assert pod["securityContext"]["runAsNonRoot"] is True, place
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = pod["containers"]
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert pod["automountServiceAccountToken"] is False


@pytest.mark.parametrize("kind", KINDS)
def test_job_environment_names_are_unique(kind: JobKind) -> None:
    values = {**values_of(kind), "environment": {"HOME": "/bucket", "OMP_NUM_THREADS": "1"}}
    for template in pod_templates(manifests(spec(values, kind=kind), ON_CLAIM)).values():
        (container,) = template["spec"]["containers"]
        names = [variable["name"] for variable in container["env"]]
        assert len(names) == len(set(names))
        assert {"name": "HOME", "value": "/bucket"} in container["env"]


FIXED_VARIABLES = {"PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_MASTER_ADDR", "PET_MASTER_PORT"}
"""Variables that the PyTorchJob operator (pytorch/envvar.go) and the TrainJob operator (torch/torch.go) set."""
ELASTIC_VARIABLES = {
    "PET_NNODES",
    "PET_NPROC_PER_NODE",
    "PET_RDZV_BACKEND",
    "PET_RDZV_ENDPOINT",
    "PET_RDZV_ID",
    "PET_RDZV_CONF",
    "PET_MAX_RESTARTS",
}
"""Variables that the operator of elastic PyTorchJobs sets: pkg/controller.v1/pytorch/elastic.go."""


@pytest.mark.parametrize(
    ("kind", "values", "variables"),
    [
        ("pytorch-job", EVERY_KEY, FIXED_VARIABLES),
        ("train-job", EVERY_KEY, FIXED_VARIABLES),
        ("pytorch-job", ELASTIC, ELASTIC_VARIABLES),
    ],
    ids=["pytorch-job", "train-job", "elastic pytorch-job"],
)
def test_job_environment_excludes_variables_of_operators(
    kind: JobKind, values: dict[str, Any], variables: set[str]
) -> None:
    for template in workers(values, kind=kind):
        names = {variable["name"] for variable in template["spec"]["containers"][0]["env"]}
        assert not names & variables


def test_job_service_selects_and_publishes_its_pods() -> None:
    service = next(each for each in manifests(spec(), ON_CLAIM) if each["kind"] == "Service")
    template = job()["spec"]["template"]
    assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert service["metadata"]["name"] == template["spec"]["subdomain"]
    assert service["spec"]["publishNotReadyAddresses"] is True


@pytest.mark.parametrize("kind", KINDS)
def test_job_update_does_not_wait_for_completion(kind: JobKind) -> None:
    found = main_object(SCRIPT, ON_CLAIM, kind=kind)
    annotations = {key: text for key, text in found["metadata"]["annotations"].items() if key.startswith("pulumi.com/")}
    assert annotations == {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"}
    service = next((each for each in manifests(spec(SCRIPT, kind=kind), ON_CLAIM) if each["kind"] == "Service"), None)
    if service is not None:
        assert service["metadata"]["annotations"] == {"pulumi.com/skipAwait": "true"}


@pytest.mark.parametrize("kind", KINDS)
def test_job_queue_deadline_and_suspension_apply_to_every_kind(kind: JobKind) -> None:
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
def test_job_backoff_limit_is_restarts_times_hosts(restarts: int, hosts: int, limit: int) -> None:
    assert backoff_limit(spec(restarts=restarts, hosts=hosts)) == limit
    found = job(restarts=restarts, hosts=hosts)["spec"]
    assert found["backoffLimit"] == limit
    assert (found["backoffLimitPerIndex"], found["maxFailedIndexes"]) == (restarts, 0)


def test_elastic_job_fails_below_min_hosts() -> None:
    found = job(elastic={"min_hosts": 2, "max_hosts": 5}, hosts=5, restarts=3)["spec"]
    assert (found["backoffLimitPerIndex"], found["maxFailedIndexes"]) == (3, 3)


def test_job_failure_policy_ends_job_on_launcher_exit() -> None:
    (_, final) = job(restarts=1)["spec"]["podFailurePolicy"]["rules"]
    assert final["action"] == "FailJob"
    assert (final["onExitCodes"]["operator"], final["onExitCodes"]["values"]) == (
        "NotIn",
        list(LOST_LAUNCHER_EXIT_CODES),
    )
    (_, final) = job(restarts=0)["spec"]["podFailurePolicy"]["rules"]
    assert (final["onExitCodes"]["operator"], final["onExitCodes"]["values"]) == ("In", list(NON_RETRYABLE_EXIT_CODES))


def test_exit_codes_of_failure_policies_are_sorted_unique_and_not_zero() -> None:
    for codes in (NON_RETRYABLE_EXIT_CODES, LOST_LAUNCHER_EXIT_CODES):
        assert list(codes) == sorted(set(codes))
        assert 0 not in codes


@pytest.mark.parametrize("kind", KINDS)
def test_job_accelerators_are_requested_by_workers_only(kind: JobKind) -> None:
    objects = manifests(spec(queued(GPU, kind), accelerators_per_host=2), ON_GPUS)
    for template in pod_templates(objects).values():
        limits = template["spec"]["containers"][0]["resources"]["limits"]
        is_worker = template["metadata"]["labels"]["app.kubernetes.io/component"] == "worker"
        assert limits.get("nvidia.com/gpu") == ("2" if is_worker else None)
        assert ("nodeSelector" in template["spec"]) == is_worker


def test_job_secrets_are_only_in_its_secret() -> None:
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


@pytest.mark.parametrize("kind", TORCH_KINDS)
def test_interactive_job_differs_in_arguments_only(kind: JobKind) -> None:
    busy, idle = (workers(EVERY_KEY, kind=kind, interactive=interactive) for interactive in (False, True))
    for one, other in zip(busy, idle, strict=True):
        if kind != "mpi-job":
            assert one["spec"]["containers"][0].pop("args") != other["spec"]["containers"][0].pop("args")
        assert one == other


def test_mpi_launcher_waits_for_workers() -> None:
    replica = main_object(SCRIPT, ON_CLAIM, kind="mpi-job")["spec"]["mpiReplicaSpecs"]["Launcher"]
    (container,) = replica["template"]["spec"]["containers"]
    words = [*container["command"], *container["args"]]
    wait = words[: words.index("mpirun")]
    assert "until ssh" in " ".join(wait)


@pytest.mark.parametrize(("answers", "status"), [(True, 0), (False, 1)])
def test_mpi_launcher_fails_if_a_worker_does_not_answer(tmp_path: Path, *, answers: bool, status: int) -> None:
    hostfile, ssh = tmp_path / "hostfile", tmp_path / "ssh"
    hostfile.write_text("worker-0 slots=1\nworker-1 slots=1\n", encoding="utf-8")
    ssh.write_text(f"#!/bin/sh\nexit {0 if answers else 255}\n", encoding="utf-8")
    ssh.chmod(0o755)
    command = WAIT_FOR_WORKERS.replace("/etc/mpi/hostfile", str(hostfile))
    environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    words = ["sh", "-c", command, "sh", "1", "echo", "mpirun starts"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (status, "mpirun starts\n" if answers else "")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "indexed-job"])
def test_operator_job_is_replaced_on_change(kind: JobKind) -> None:
    resource = ALL_KINDS[kind].resource
    assert resource is not None
    registered = engine(spec(SCRIPT, kind=kind), ON_CLAIM).requests["resnet-job"]
    paths, suspends = set(registered.replaceOnChanges), ".".join(("spec", *resource.suspend))
    found = main_object(SCRIPT, ON_CLAIM, kind=kind, deadline_seconds=600)["spec"]
    first, *rest = resource.suspend
    expected = {f"spec.{key}" for key in found if key != first}
    if rest:
        expected |= {f"spec.{first}.{key}" for key in found[first]}
    assert suspends not in paths
    assert paths >= expected - {suspends}
    assert resource.suspend == ("suspend",) or "spec.runPolicy.activeDeadlineSeconds" in paths
    assert registered.deleteBeforeReplace


def test_indexed_job_is_replaced_if_an_immutable_field_changes() -> None:
    registered = engine(spec(SCRIPT), ON_CLAIM).requests["resnet-job"]
    assert "spec.backoffLimitPerIndex" in registered.replaceOnChanges


@pytest.mark.parametrize("kind", ["pytorch-job", "mx-job"])
def test_pods_of_the_training_operator_end_at_the_deadline(kind: JobKind) -> None:
    for template in pod_templates(manifests(spec(SCRIPT, kind=kind, deadline_seconds=600), ON_CLAIM)).values():
        assert template["spec"]["activeDeadlineSeconds"] == 600


def test_mpi_worker_is_restarted_in_its_pod() -> None:
    replicas = main_object(SCRIPT, ON_CLAIM, kind="mpi-job")["spec"]["mpiReplicaSpecs"]
    assert {role: replica["restartPolicy"] for role, replica in replicas.items()} == {
        "Launcher": "Never",
        "Worker": "OnFailure",
    }


@pytest.mark.parametrize("kind", ["jobset", "train-job"])
def test_hosts_of_a_tpu_slice_stay_in_one_node_pool(kind: JobKind) -> None:
    values = {"kind": kind, "accelerator": "v5litepod-16"}
    jobs = [
        each for each in manifests(spec(SCRIPT, **values), ON_TPUS) if each["kind"] in ("JobSet", "TrainingRuntime")
    ]
    text = json.dumps(jobs)
    assert '"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"' in text


def test_train_job_runtime_is_created_before_the_old_one_is_deleted() -> None:
    registered = engine(spec(kind="train-job"), ON_CLAIM).requests["resnet-runtime"]
    assert registered.replaceOnChanges == ["spec"]
    assert not registered.deleteBeforeReplace


TEXT = "import os\nprint(os.environ['RANK'])\n"


def objects_of_script(folder: Path, kind: JobKind = "indexed-job") -> list[dict[str, Any]]:
    """Return the objects of a job with the script `train.py` of a folder."""
    mine = JobSpec(name="mine", kind=kind, script="./train.py", hosts=2)
    args = TrainingJobArgs(spec=mine, placement=ON_CLAIM, project=folder)
    return run(lambda: TrainingJob("mine", args)).manifests()


@pytest.mark.parametrize("kind", KINDS)
def test_user_script_is_mounted_in_every_pod(kind: JobKind, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TEXT, encoding="utf-8")
    found = objects_of_script(tmp_path, kind)
    (script,) = [each for each in found if each["kind"] == "ConfigMap"]
    assert script["data"] == {"train.py": TEXT}
    pods = [template["spec"] for template in pod_templates(found).values()]
    assert pods
    words = []
    for pod in pods:
        assert {"name": "script", "configMap": {"name": script["metadata"]["name"]}} in pod["volumes"]
        (container,) = pod["containers"]
        assert {"name": "script", "mountPath": "/opt/script"} in container["volumeMounts"]
        words += [*container["command"], *container["args"]]
    assert any("/opt/script/train.py" in word for word in words)


def test_user_script_change_renames_its_config_map(tmp_path: Path) -> None:
    names = []
    for text in (TEXT, TEXT, TEXT + "#\n"):
        (tmp_path / "train.py").write_text(text, encoding="utf-8")
        names += [each["metadata"]["name"] for each in objects_of_script(tmp_path) if each["kind"] == "ConfigMap"]
    assert names[0] == names[1] != names[2]


@pytest.mark.parametrize(
    ("content", "code"), [(None, "absent"), (b"\xff\xfe", "not_utf8"), (b"key = 'AKIA" + b"Q" * 16 + b"'", "secret")]
)
def test_user_script_invalid_file_is_rejected(
    content: bytes | None, code: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / "train.py").write_bytes(content)
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    mine = {"name": "mine", "script": "./train.py", "resources": {"cpu": "1m", "memory": "9Mi"}, "shared_memory": "1Mi"}
    assert problems_of({"platform": {"kind": "local"}, "jobs": [mine]}) == [(f"job.script.{code}", "jobs.0.script")]
