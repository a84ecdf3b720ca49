"""Whole program against Pulumi mocks: a local and an existing cluster, errors, secrets, images, effects of all keys."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.runtime import rpc

from infra.existing import ClaimConfig, KubeconfigConfig, UrlConfig
from infra.local import lifecycle
from infra.local.cloud import LocalConfig
from infra.project import PROJECT_VARIABLE
from tests.recording import Record, RecordingEngine, run

PROJECT = Path(__file__).parents[2]
JOBS = [{"name": "digits", "recipe": "digits", "resources": {"cpu": "1m", "memory": "200Mi"}, "shared_memory": "1Mi"}]
LOCAL = {"kind": "local", "name": "local", "nodes": 2, "port": 16443, "namespace": "training"}


@pytest.fixture
def cluster(tmp_path: Path) -> dict[str, Any]:
    """Return the settings of an existing cluster, with every key."""
    for name in ("one", "two"):
        (tmp_path / name).write_text("contexts: [{name: kind-kind}, {name: other}]", encoding="utf-8")
    return {
        "kind": "kubeconfig",
        "context": "kind-kind",
        "kubeconfig": str(tmp_path / "one"),
        "namespace": "training",
        "image": "example.com/trainer:1",
        "bucket": {"kind": "claim", "size": "20Gi", "storage_class": "standard", "access_mode": "ReadWriteOnce"},
        "operators": "install",
        "create_namespace": True,
    }


def program(
    platform: Any, jobs: Any = JOBS, secrets: tuple[str, ...] = (), plain_secrets: tuple[str, ...] = (), **others: Any
) -> tuple[RecordingEngine, dict[str, Any]]:
    """Return the program's registrations and outputs for a configuration. Its secrets have the value `canary`."""
    exported: dict[str, Any] = {}

    async def body() -> pulumi.Output[None]:
        values = {"platform": platform, "jobs": jobs, **others}
        settings = {f"trainyard:{key}": json.dumps(value) for key, value in values.items()}
        stored = {f"secrets:{name}": "canary" for name in (*secrets, *plain_secrets)}
        pulumi.runtime.set_all_config(settings | stored, [f"secrets:{name}" for name in secrets])
        waiting = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(pulumi, "export", lambda key, value: waiting.append((key, value)))
            await runpy.run_path(str(PROJECT / "__main__.py"))["main"]()
        return pulumi.Output.from_input(dict(waiting)).apply(lambda found: exported.update(found))

    return run(body), exported


def plan(platform: dict[str, Any]) -> tuple[Any, ...]:
    """Return the resources and the outputs of a platform's settings."""
    engine, exported = program(platform)
    return [(record.type, record.name, record.inputs) for record in engine.records], exported


def local_images(engine: RecordingEngine) -> Record:
    """Return the resource that loads the images of the local cluster."""
    (found,) = [record for record in engine.of_type("dynamic:Resource") if record.name == "local-images"]
    return found


def test_kubernetes_types_are_not_imported_before_the_local_cluster() -> None:
    # These types take a third of the import time. The program imports them while the provider checks the cluster.
    imports = "import runpy, sys; runpy.run_path('__main__.py'); import infra.local.provider"
    words = [sys.executable, "-c", f"{imports}; print('pulumi_kubernetes' in sys.modules)"]
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_program_local_stack_has_expected_resources() -> None:
    engine, exported = program(LOCAL)
    assert sorted(record.type for record in engine.records) == [
        "kubernetes:batch/v1:Job",
        "kubernetes:core/v1:Namespace",
        "kubernetes:core/v1:PersistentVolume",
        "kubernetes:core/v1:PersistentVolumeClaim",
        "kubernetes:core/v1:Service",
        "kubernetes:core/v1:ServiceAccount",
        "pulumi-python:dynamic:Resource",
        "pulumi-python:dynamic:Resource",
        "pulumi:providers:kubernetes",
        "trainyard:infra:TrainingNamespace",
        "trainyard:local:LocalCluster",
        "trainyard:workloads:TrainingJob",
    ]
    (claim,) = engine.of_type(":PersistentVolumeClaim")
    assert claim.inputs["spec"]["volumeName"] == claim.inputs["spec"]["storageClassName"] == "training-bucket"
    assert claim.inputs["spec"]["accessModes"] == ["ReadWriteMany"]
    (volume,) = engine.of_type(":PersistentVolume")
    assert volume.inputs["metadata"]["name"] == volume.inputs["spec"]["storageClassName"] == "training-bucket"
    assert volume.inputs["spec"]["hostPath"] == {"path": "/run/trainyard/bucket", "type": "Directory"}
    (provider,) = engine.of_type("providers:kubernetes")
    assert provider.inputs["clusterIdentifier"] == "0123456789abcdef"
    assert exported["bucket_url"] == "file:///cluster/bucket"
    assert exported["jobs"] == ["digits"]
    assert exported["logs"] == {
        "digits": "kubectl --kubeconfig /cluster/admin.kubeconfig -n training logs --follow --prefix --tail=-1 "
        "--max-log-requests=100 --selector trainyard.dev/job=digits"
    }


def test_program_local_objects_are_deleted_with_cluster() -> None:
    engine, _ = program(LOCAL)
    roots = ["kubernetes", "training", "digits"]
    assert all("dynamic:Resource::local-processes" in engine.requests[name].deletedWith for name in roots)
    inside = [record.name for record in engine.records if record.type.startswith("kubernetes:")]
    # The engine passes `deleted_with` of a component on to its children.
    assert {engine.requests[name].parent.rpartition("::")[2] for name in inside} == {"training", "digits"}
    assert all("kubernetes::kubernetes" in engine.requests[name].provider for name in inside)


def test_program_local_trainer_image_is_loaded() -> None:
    engine, exported = program(LOCAL)
    assert exported["image"] in local_images(engine).inputs["images"]
    assert "local-images" in engine.dependencies("digits-job")
    assert engine.job_pod()["containers"][0]["image"] == exported["image"]


def test_program_local_without_a_job_on_the_trainer_image_outputs_no_image() -> None:
    _, exported = program(LOCAL, jobs=[])
    assert exported["image"] == ""


def test_program_incapable_machine_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "check_machine", lambda _settings: ["no root", "no disk"])
    with pytest.raises(pulumi.RunError, match=r"^no root\nno disk$"):
        program(LOCAL)


def test_program_invalid_settings_are_rejected_together() -> None:
    with pytest.raises(pulumi.RunError) as caught:
        program({**LOCAL, "nodes": 0}, job=[])
    keys = [line.partition(" = ")[0] for line in str(caught.value).splitlines()]
    assert keys == ["trainyard:platform.nodes", "trainyard:job"]


def test_program_existing_cluster_has_provider_and_outputs(cluster: dict[str, Any]) -> None:
    engine, exported = program(cluster)
    (provider,) = engine.of_type("providers:kubernetes")
    assert provider.inputs == {"context": "kind-kind", "kubeconfig": cluster["kubeconfig"]}
    (namespace,) = engine.of_type(":Namespace")
    assert namespace.inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    (account,) = engine.of_type(":ServiceAccount")
    assert account.inputs["automountServiceAccountToken"] is False
    assert exported["kubeconfig_path"] == cluster["kubeconfig"]
    assert exported["kubeconfig"] is None
    assert exported["get_kubeconfig"] == (
        f"export KUBECONFIG={cluster['kubeconfig']} && kubectl config use-context kind-kind"
    )
    assert engine.of_type("dynamic:Resource") == []


def test_program_existing_namespace_is_not_created(cluster: dict[str, Any]) -> None:
    engine, exported = program({**cluster, "create_namespace": False, "namespace": "team-a"})
    assert engine.of_type(":Namespace") == []
    assert exported["namespace"] == "team-a"
    assert {each["metadata"]["namespace"] for each in engine.manifests()} == {"team-a"}


def test_program_existing_cluster_with_object_store_has_no_claim(cluster: dict[str, Any]) -> None:
    engine, exported = program({**cluster, "bucket": {"kind": "url", "url": "s3://team/"}})
    assert engine.of_type(":PersistentVolumeClaim") == []
    assert exported["bucket_url"] == "s3://team"


@pytest.mark.parametrize(
    ("settings", "image"),
    [({}, "example.com/trainer:1"), ({"image": "example.com/team:2", "script": "/opt/a.py"}, "example.com/team:2")],
)
def test_program_pods_and_run_record_have_the_jobs_image(
    cluster: dict[str, Any], settings: dict[str, str], image: str
) -> None:
    engine, exported = program(cluster, jobs=[{"name": "mine", **(settings or {"recipe": "digits"})}])
    assert engine.job_pod()["containers"][0]["image"] == image
    assert exported["run_records"]["mine"]["image"] == image


def test_program_without_jobs_has_platform_only() -> None:
    engine, exported = program(LOCAL, jobs=[])
    assert engine.of_type(":Job") == []
    assert exported["jobs"] == []


LOCAL_CHANGES = {"name": "x", "nodes": 3, "port": 16444, "namespace": "x"}
CLUSTER_CHANGES = {"context": "other", "namespace": "x", "create_namespace": False, "image": "example.com/other"}
CLAIM_CHANGES = {"size": "1Gi", "storage_class": "fast", "access_mode": "ReadWriteMany"}


def test_program_every_settings_key_has_a_test_that_changes_it() -> None:
    assert {*LOCAL_CHANGES, "kind"} == set(LocalConfig.model_fields)
    # test_program_present_operators_are_not_installed compares `operators`.
    others = {"kind", "kubeconfig", "bucket", "operators"}
    assert {*CLUSTER_CHANGES, *others} == set(KubeconfigConfig.model_fields)
    assert {*CLAIM_CHANGES, "kind"} == set(ClaimConfig.model_fields)
    assert set(UrlConfig.model_fields) == {"kind", "url"}


@pytest.mark.parametrize(("key", "other"), LOCAL_CHANGES.items())
def test_local_key_changes_the_plan(key: str, other: object) -> None:
    assert plan({**LOCAL, key: other}) != plan(LOCAL)


def test_existing_cluster_key_changes_the_plan(cluster: dict[str, Any]) -> None:
    two = str(Path(cluster["kubeconfig"]).with_name("two"))
    first = plan(cluster)
    assert plan(dict(cluster)) == first
    for key, other in {**CLUSTER_CHANGES, "kubeconfig": two}.items():
        assert plan({**cluster, key: other}) != first, key
    for key, other in CLAIM_CHANGES.items():
        assert plan({**cluster, "bucket": {**cluster["bucket"], key: other}}) != first, key
    assert plan({**cluster, "bucket": {"kind": "url", "url": "s3://a"}}) != first


SECRET_JOB = [{**JOBS[0], "secrets": {"WANDB_API_KEY": "wandb"}}]


def test_program_secret_is_only_in_secret_of_job(cluster: dict[str, Any]) -> None:
    engine, exported = program(cluster, SECRET_JOB, secrets=("wandb",))
    (secret,) = engine.of_type(":Secret")
    assert "canary" in str(secret.inputs["stringData"])
    assert rpc._special_secret_sig in str(secret.inputs["stringData"])
    assert "canary" not in str([record for record in engine.records if record is not secret])
    assert "canary" not in str(exported)


def test_program_secret_in_plain_text_is_rejected(cluster: dict[str, Any]) -> None:
    with pytest.raises(pulumi.RunError) as caught:
        program(cluster, SECRET_JOB, plain_secrets=("wandb",))
    assert "secrets:wandb" in str(caught.value)
    assert "canary" not in str(caught.value)


@pytest.mark.usefixtures("operator_objects")
def test_program_operator_job_depends_on_operator(cluster: dict[str, Any]) -> None:
    engine, _ = program(cluster, [{**JOBS[0], "kind": "jobset"}, {**JOBS[0], "name": "plain"}])
    (job_set,) = engine.of_type(":JobSet")
    assert job_set.name == "digits-job"
    operator = "operators-jobset-controller"
    assert operator in engine.dependencies("digits-job")
    assert operator not in engine.dependencies("plain-job")


@pytest.mark.usefixtures("operator_objects")
def test_program_present_operators_are_not_installed(cluster: dict[str, Any]) -> None:
    jobs = [{**JOBS[0], "kind": "jobset"}]
    assert program(cluster, jobs)[0].of_type("infra:Operators")
    engine, _ = program({**cluster, "operators": "present"}, jobs)
    assert engine.of_type("infra:Operators") == []
    assert engine.of_type(":JobSet")


@pytest.mark.usefixtures("operator_objects")
def test_program_local_operator_image_is_loaded() -> None:
    engine, _ = program(LOCAL, [{**JOBS[0], "kind": "jobset"}])
    (deployment,) = engine.of_type(":Deployment")
    image = deployment.inputs["spec"]["template"]["spec"]["containers"][0]["image"]
    assert image.startswith("trainyard.local/operator-jobset:")
    assert image in local_images(engine).inputs["images"]
    assert "local-images" in engine.dependencies(deployment.name)


HOROVOD = {"name": "digits", "image": "horovod", "script": "/opt/trainyard/recipes/mxnet_horovod.py", "torchrun": False}


def test_program_local_builtin_image_of_job_is_loaded() -> None:
    engine, _ = program(LOCAL, [HOROVOD])
    image = engine.job_pod()["containers"][0]["image"]
    assert image.startswith("trainyard.local/horovod:")
    assert image in local_images(engine).inputs["images"]


def test_program_local_job_mounts_its_data_and_loads_its_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    (tmp_path / "data").mkdir()
    (tmp_path / "requirements.txt").write_text("cowsay==6.1\n", encoding="utf-8")
    engine, exported = program(LOCAL, [{**JOBS[0], "data": "./data", "requirements": "requirements.txt"}])
    images = local_images(engine).inputs
    (reference,) = images["layers"]
    assert images["layers"][reference] == {"base": "trainer", "requirements": "cowsay==6.1\n"}
    assert reference in images["images"]
    pod = engine.job_pod()
    assert pod["containers"][0]["image"] == exported["run_records"]["digits"]["image"] == reference
    (volume,) = [each for each in engine.of_type(":PersistentVolume") if each.name.startswith("digits-data-")]
    assert volume.inputs["spec"]["hostPath"] == {"path": str(tmp_path / "data"), "type": "Directory"}
    (claim,) = [each["persistentVolumeClaim"] for each in pod["volumes"] if each["name"] == "data"]
    assert claim == {"claimName": volume.name.removesuffix("-volume"), "readOnly": True}
    assert {"name": "data", "mountPath": "/data", "readOnly": True} in pod["containers"][0]["volumeMounts"]
