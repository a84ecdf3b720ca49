"""Node resources in the jobs of a GKE platform: devices, networks, drivers, images."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.components.cloud_program import graph
from tests.components.gke_graph import A3, gke


def pod_on(platform: dict[str, Any], **job: Any) -> dict[str, Any]:
    """Return the pod of a job of two hosts."""
    what = {} if "script" in job else {"recipe": "digits"}
    engine, _ = graph(platform, [{"name": "a", "hosts": 2, **what, **job}])
    (record,) = engine.of_type("batch/v1:Job")
    found: dict[str, Any] = record.inputs["spec"]["template"]["spec"]
    return found


def test_gke_job_requests_gpus_of_its_nodes() -> None:
    job = {"name": "a", "recipe": "digits", "hosts": 2, "accelerator": "nvidia-tesla-t4", "accelerators_per_host": 2}
    engine, exported = graph(gke(), [job])
    (record,) = engine.of_type("batch/v1:Job")
    pod = record.inputs["spec"]["template"]["spec"]
    assert pod["nodeSelector"] == {
        "cloud.google.com/gke-accelerator": "nvidia-tesla-t4",
        "trainyard.dev/pool": "gpus",
    }
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert container["image"] == f"gcr.io/some-project/sh22-dist-gpu:main@sha256:{'0' * 64}"
    assert {"name": "TRAINYARD_BUCKET", "value": "gs://gke-dist-bucket-0123456"} in container["env"]
    assert exported["bucket_url"] == "gs://gke-dist-bucket-0123456"
    assert exported["get_kubeconfig"].startswith("gcloud container clusters get-credentials gke-dist")


def test_gke_job_on_a3_has_network_annotations() -> None:
    job = {"name": "a", "recipe": "digits", "hosts": 2, "accelerator": "nvidia-h100-80gb", "accelerators_per_host": 8}
    engine, _ = graph(gke(A3), [job])
    (record,) = engine.of_type("batch/v1:Job")
    annotations = record.inputs["spec"]["template"]["metadata"]["annotations"]
    listed = json.loads(annotations["networking.gke.io/interfaces"])
    assert [each["network"] for each in listed] == ["default", *(f"gpu-nic-{index}" for index in range(4))]


@pytest.mark.parametrize(
    ("machine", "gpu"), [("a3-ultragpu-8g", "nvidia-h200-141gb"), ("a4-highgpu-8g", "nvidia-b200")]
)
def test_gke_job_with_rdma_sources_nccl_environment_script(machine: str, gpu: str) -> None:
    platform = gke({"machine_type": machine}, zone="us-central1-b")
    pod = pod_on(platform, accelerator=gpu, accelerators_per_host=8)
    (container,) = pod["containers"]
    assert container["command"] == ["bash"]
    assert container["args"][:3] == ["-c", '. /usr/local/gib/scripts/set_nccl_env.sh && exec "$@"', "bash"]
    assert container["args"][3:6] == ["python", "-m", "trainer.launch"]
    assert {"name": "profile", "mountPath": "/usr/local/gib", "readOnly": True} in container["volumeMounts"]
    assert {"name": "profile", "persistentVolumeClaim": {"claimName": "gib", "readOnly": True}} in pod["volumes"]
    engine, _ = graph(platform)
    (volume,) = engine.of_type(":PersistentVolume")
    assert volume.inputs["spec"]["hostPath"] == {"path": "/home/kubernetes/bin/gib", "type": "Directory"}
    (claim,) = engine.of_type(":PersistentVolumeClaim")
    assert claim.inputs["metadata"]["name"] == "gib"
    assert claim.inputs["spec"]["volumeName"] == volume.inputs["metadata"]["name"] == "training-gib"
    assert claim.inputs["spec"]["storageClassName"] == volume.inputs["spec"]["storageClassName"]
    (namespace,) = engine.of_type(":Namespace")
    assert namespace.inputs["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_gke_job_without_rdma_runs_python_directly() -> None:
    for machine, gpu in (("a3-highgpu-8g", "nvidia-h100-80gb"), ("n1-standard-4", "nvidia-tesla-t4")):
        platform = gke({"machine_type": machine, "accelerator": gpu})
        (container,) = pod_on(platform, accelerator=gpu, accelerators_per_host=2)["containers"]
        assert container["command"] == ["python"]
        assert graph(platform)[0].of_type(":PersistentVolume") == []


def test_gke_job_of_trainer_image_finds_driver() -> None:
    found = {"name": "LD_LIBRARY_PATH", "value": "/usr/local/nvidia/lib64"}
    gpus = {"accelerator": "nvidia-tesla-t4", "accelerators_per_host": 2}
    assert found in pod_on(gke(), **gpus)["containers"][0]["env"]
    # A user's image may search more paths and sets them itself.
    theirs = pod_on(gke(), **gpus, image="example.com/a:1", script="train.py")
    assert "LD_LIBRARY_PATH" not in {each["name"] for each in theirs["containers"][0]["env"]}
    own = pod_on(gke(), **gpus, environment={"LD_LIBRARY_PATH": "/opt"})["containers"][0]["env"]
    assert [each["value"] for each in own if each["name"] == "LD_LIBRARY_PATH"] == ["/opt"]


def test_gke_tpu_job_runs_xla_image() -> None:
    job = {"name": "a", "recipe": "digits", "accelerator": "v4-32"}
    engine, exported = graph(gke({"accelerator": "v4-32"}, zone="us-central2-b"), [job])
    images = {record.name: record.inputs for record in engine.of_type("index:Image")}
    assert list(images) == ["image-xla-build"], "no job runs the other"
    assert images["image-xla-build"]["dockerfile"]["location"].endswith("trainer/Dockerfile.xla")
    assert images["image-xla-build"]["platforms"] == ["linux/amd64"]
    (record,) = engine.of_type("batch/v1:Job")
    (container,) = record.inputs["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"gcr.io/some-project/sh22-dist-gpu:main-xla@sha256:{'0' * 64}"
    assert container["image"] == exported["run_records"]["a"]["image"]
    assert exported["image"] == ""


def test_gke_job_on_v100_runs_cuda12_image() -> None:
    pools = ({"accelerator": "nvidia-tesla-v100", "accelerators_per_node": 2}, {"accelerator": "nvidia-tesla-t4"})
    jobs: list[dict[str, Any]] = [
        {"name": "old", "recipe": "imagenet", "accelerator": "nvidia-tesla-v100", "accelerators_per_host": 2},
        {"name": "new", "recipe": "imagenet", "accelerator": "nvidia-tesla-t4"},
    ]
    engine, exported = graph(gke(*pools), jobs)
    images = {record.name: record.inputs for record in engine.of_type("index:Image")}
    torch = {name: image["buildArgs"].get("TORCH") for name, image in images.items()}
    assert torch == {"image-build": None, "image-cuda12-build": "-cuda12"}
    assert images["image-cuda12-build"]["dockerfile"] == images["image-build"]["dockerfile"]
    records = {name: record["image"] for name, record in exported["run_records"].items()}
    assert records["old"].startswith("gcr.io/some-project/sh22-dist-gpu:main-cuda12@")
    assert records["new"].startswith("gcr.io/some-project/sh22-dist-gpu:main@")


def test_gke_job_on_v100_runs_prebuilt_image() -> None:
    prebuilt = f"example.com/a@sha256:{'1' * 64}"
    pool = {"accelerator": "nvidia-tesla-v100", "accelerators_per_node": 1}
    job = {"name": "a", "recipe": "imagenet", "accelerator": "nvidia-tesla-v100"}
    engine, exported = graph(gke(pool, image={"prebuilt": prebuilt}), [job])
    assert engine.of_type("index:Image") == []
    assert exported["run_records"]["a"]["image"] == prebuilt


def test_gke_job_with_own_image_builds_none() -> None:
    engine, exported = graph(gke({"name": "gpus"}), [{"name": "a", "script": "/a.py", "image": "example.com/a:1"}])
    assert engine.of_type("index:Image") == []
    assert exported["image"] == ""
