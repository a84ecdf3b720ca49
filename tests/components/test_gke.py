"""Graph of a GKE platform and its jobs: permissions, networks, bucket, images, order, devices."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra import cloud_image
from infra.project import PROJECT_VARIABLE
from tests.components.cloud_program import A3, cluster, gke, graph, pool
from tests.recording import Record, RecordingEngine

IMAGE = "us-central1-docker.pkg.dev/some-project/gke-dist/sh22-dist-gpu"
"""Name of the trainer image with the default settings."""


@pytest.fixture(scope="module")
def engine() -> RecordingEngine:
    """Return the graph of the default settings."""
    return graph(gke())[0]


def bindings(engine: RecordingEngine) -> list[Record]:
    """Return every grant of a role."""
    return [record for record in engine.records if "Member" in record.type and record.type.startswith("gcp:")]


@pytest.mark.parametrize(
    ("settings", "version"),
    [
        ({"accelerator": "nvidia-tesla-t4"}, "LATEST"),
        ({"accelerator": "nvidia-tesla-t4", "gpu_driver": "default"}, "DEFAULT"),
        ({"accelerator": "nvidia-tesla-v100"}, "DEFAULT"),
        ({"accelerator": "nvidia-tesla-v100", "gpu_driver": "latest"}, "LATEST"),
    ],
)
def test_gke_pool_has_driver_for_its_gpu(settings: dict[str, Any], version: str) -> None:
    (gpu,) = pool(accelerators_per_node=1, **settings)["nodeConfig"]["guestAccelerators"]
    assert gpu["gpuDriverInstallationConfig"] == {"gpuDriverVersion": version}


def test_gke_default_stack_equals_tutorial() -> None:
    # The values of the Weights & Biases distributed-training tutorial.
    found = pool()
    config = found["nodeConfig"]
    assert (found["nodeCount"], config["machineType"], config["diskType"], config["diskSizeGb"]) == (
        2,
        "n1-standard-4",
        "pd-ssd",
        100,
    )
    (gpu,) = config["guestAccelerators"]
    assert (gpu["type"], gpu["count"]) == ("nvidia-tesla-t4", 2)
    assert gpu["gpuDriverInstallationConfig"] == {"gpuDriverVersion": "LATEST"}
    assert "autoscaling" not in found
    assert cluster()["name"] == "gke-dist"


def test_gke_nodes_have_no_public_address(engine: RecordingEngine) -> None:
    assert cluster()["privateClusterConfig"]["enablePrivateNodes"] is True
    for record in engine.of_type("nodePool:NodePool"):
        assert record.inputs["networkConfig"]["enablePrivateNodes"] is True


def test_gke_network_has_no_automatic_subnetworks(engine: RecordingEngine) -> None:
    (network,) = engine.of_type("network:Network")
    assert network.inputs["autoCreateSubnetworks"] is False


def test_gke_api_server_is_limited_to_dns_endpoint_or_authorized_networks() -> None:
    closed, listed = cluster(), cluster(authorized_networks=["198.51.100.0/24"])
    assert closed["privateClusterConfig"]["enablePrivateEndpoint"] is True
    assert closed["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["allowExternalTraffic"] is True
    assert closed["masterAuthorizedNetworksConfig"] == {"cidrBlocks": [], "gcpPublicCidrsAccessEnabled": False}
    assert listed["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["allowExternalTraffic"] is False
    assert listed["masterAuthorizedNetworksConfig"]["cidrBlocks"] == [{"cidrBlock": "198.51.100.0/24"}]


def test_gke_kubeconfig_has_no_credentials() -> None:
    (provider,) = graph(gke())[0].of_type("providers:kubernetes")
    by_name = yaml.safe_load(provider.inputs["kubeconfig"])
    assert by_name["clusters"][0]["cluster"] == {"server": "https://gke-1.us-central1.gke.goog"}
    plugin = by_name["users"][0]["user"]["exec"]
    assert plugin["command"] == "gke-gcloud-auth-plugin"
    assert plugin["args"] == ["--use_application_default_credentials"]
    (provider,) = graph(gke(authorized_networks=["198.51.100.0/24"]))[0].of_type("providers:kubernetes")
    by_address = yaml.safe_load(provider.inputs["kubeconfig"])
    assert by_address["clusters"][0]["cluster"] == {
        "server": "https://203.0.113.7",
        "certificate-authority-data": "Q0E=",
    }
    assert by_address["current-context"] == "gke_some-project_us-central1-a_gke-dist"


def test_gke_nodes_have_own_service_account(engine: RecordingEngine) -> None:
    nodes = "gke-dist-nodes@some-project.iam.gserviceaccount.com"
    for record in engine.of_type("nodePool:NodePool"):
        assert record.inputs["nodeConfig"]["serviceAccount"] == nodes
        assert record.inputs["nodeConfig"]["workloadMetadataConfig"] == {"mode": "GKE_METADATA"}
    # GKE creates this default pool with the cluster, and the provider then removes it.
    assert cluster()["nodeConfig"]["serviceAccount"] == nodes
    assert cluster()["removeDefaultNodePool"] is True


def test_gke_roles_are_minimal(engine: RecordingEngine) -> None:
    granted = {(record.inputs["role"], record.type.split("/")[0]) for record in bindings(engine)}
    assert granted == {
        ("roles/container.defaultNodeServiceAccount", "gcp:projects"),
        ("roles/serviceusage.serviceUsageConsumer", "gcp:projects"),
        ("roles/iam.workloadIdentityUser", "gcp:serviceaccount"),
        ("roles/storage.objectUser", "gcp:storage"),
        ("roles/artifactregistry.reader", "gcp:artifactregistry"),
    }
    assert all("allUsers" not in record.inputs["member"] for record in bindings(engine))


@pytest.mark.parametrize(
    ("image", "can_read"),
    [
        ("us-central1-docker.pkg.dev/{project}/ml/trainer", True),
        ("gcr.io/{project}/trainer", True),
        ("us-central1-docker.pkg.dev/{project}-2/ml/trainer", False),
        ("docker.io/{project}/trainer", False),
    ],
)
def test_gke_nodes_can_read_a_prebuilt_image_of_the_project(image: str, can_read: bool) -> None:
    platform = gke()
    reference = image.format(project=platform["project"]) + f"@sha256:{'0' * 64}"
    engine, _ = graph({**platform, "image": {"prebuilt": reference}})
    roles = {record.inputs["role"] for record in bindings(engine)}
    assert ("roles/artifactregistry.reader" in roles) == can_read


@pytest.mark.parametrize("is_on", [True, False])
def test_gke_image_streaming_enables_the_api_and_grants_the_role(is_on: bool) -> None:
    engine, _ = graph(gke(image_streaming=is_on))
    apis = {record.inputs["service"] for record in engine.of_type("projects/service:Service")}
    roles = {record.inputs["role"] for record in bindings(engine)}
    assert ("containerfilesystem.googleapis.com" in apis) == is_on
    assert ("roles/serviceusage.serviceUsageConsumer" in roles) == is_on
    assert ("nodes-image-streaming" in engine.dependencies("system-nodes")) == is_on
    # A preview does not know the outputs of a new grant, so it would show a replacement of nodes that use them.
    inputs = [urn for record in engine.records for urns in record.depends.values() for urn in urns]
    assert not any(urn.endswith("::nodes-image-streaming") for urn in inputs)


def test_gke_job_account_is_limited_to_bucket(engine: RecordingEngine) -> None:
    (annotated,) = engine.of_type(":ServiceAccount")
    account = annotated.inputs["metadata"]["annotations"]["iam.gke.io/gcp-service-account"]
    granted = [record for record in bindings(engine) if account in record.inputs["member"]]
    assert [(record.inputs["bucket"], record.inputs["role"]) for record in granted] == [
        ("gke-dist-bucket-0123456", "roles/storage.objectUser")
    ]
    (user,) = engine.of_type("serviceaccount/iAMMember:IAMMember")
    assert user.inputs["member"] == "serviceAccount:some-project.svc.id.goog[training/trainer]"
    assert account in user.inputs["serviceAccountId"]


def test_gke_bucket_is_private_and_retained(engine: RecordingEngine) -> None:
    (bucket,) = engine.of_type("bucket:Bucket")
    assert bucket.inputs["publicAccessPrevention"] == "enforced"
    assert bucket.inputs["uniformBucketLevelAccess"] is True
    assert bucket.inputs["hierarchicalNamespace"] == {"enabled": True}
    assert bucket.inputs["softDeletePolicy"] == {"retentionDurationSeconds": 7 * 86400}
    assert bucket.inputs["forceDestroy"] is False
    assert engine.requests[bucket.name].retainOnDelete is True
    deleting = graph(gke(bucket={"keep": False}))[0]
    (bucket,) = deleting.of_type("bucket:Bucket")
    assert bucket.inputs["forceDestroy"] is True
    assert deleting.requests[bucket.name].retainOnDelete is False


def test_gke_bucket_deletes_checkpoints_only_with_checkpoint_days() -> None:
    def prefixes(**bucket: Any) -> list[list[str]]:
        (record,) = graph(gke(bucket=bucket))[0].of_type("bucket:Bucket")
        return [rule["condition"].get("matchesPrefixes", []) for rule in record.inputs["lifecycleRules"]]

    assert prefixes() == [["profiles/"], []]
    assert prefixes(checkpoint_days=90) == [["profiles/"], ["checkpoints/"], []]


def test_gke_nodes_are_shielded(engine: RecordingEngine) -> None:
    shielded = {"enableIntegrityMonitoring": True, "enableSecureBoot": True}
    for record in engine.of_type("nodePool:NodePool"):
        assert record.inputs["nodeConfig"]["shieldedInstanceConfig"] == shielded
    assert cluster()["nodeConfig"]["shieldedInstanceConfig"] == shielded
    assert cluster()["enableShieldedNodes"] is True


def test_gke_secrets_are_encrypted_with_given_key() -> None:
    key = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
    assert cluster(secrets_key=key)["databaseEncryption"] == {"state": "ENCRYPTED", "keyName": key}
    assert cluster()["databaseEncryption"] == {"state": "DECRYPTED"}


def test_gke_resources_are_created_in_order(engine: RecordingEngine) -> None:
    assert "system-nodes" in engine.dependencies("gpus-nodes")
    assert {"network-nat", "network-subnet", "nodes-role"} <= engine.dependencies("cluster-control-plane")
    assert "cluster-control-plane" in engine.dependencies("system-nodes")
    assert "system-nodes" in engine.dependencies("kubernetes")
    assert any(name.startswith("services-") for name in engine.dependencies("network-vpc"))


def test_gke_objects_are_deleted_with_cluster() -> None:
    engine, _ = graph(gke(), [{"name": "a", "recipe": "digits", "accelerator": "nvidia-tesla-t4"}])
    for name in ("kubernetes", "training", "a"):
        assert "cluster-control-plane" in engine.requests[name].deletedWith


def test_gke_timeouts_cover_slow_operations(engine: RecordingEngine) -> None:
    assert engine.requests["gpus-nodes"].customTimeouts.create == "120m"
    assert engine.requests["network-vpc"].customTimeouts.delete == "20m"
    assert engine.requests["cluster-control-plane"].customTimeouts.create == "60m"


def test_gke_prebuilt_image_is_not_built() -> None:
    reference = f"example.com/team/trainer@sha256:{'1' * 64}"
    engine, exported = graph(gke(image={"prebuilt": reference}))
    assert exported["image"] == reference
    assert engine.of_type("index:Image") == []
    assert engine.of_type("repository:Repository") == []


def test_gke_image_is_built_for_both_architectures() -> None:
    engine, _ = graph(gke({"name": "gpus"}), [{"name": "a", "recipe": "digits"}])
    (image,) = engine.of_type("index:Image")
    assert image.inputs["platforms"] == ["linux/amd64", "linux/arm64"]
    assert image.inputs["tags"] == [f"{IMAGE}:main"]
    assert image.inputs["buildOnPreview"] is False


def test_gke_repository_with_clusters_name_belongs_to_the_stack() -> None:
    def place(**changes: Any) -> tuple[str, str]:
        (record,) = graph(gke(**changes))[0].of_type("repository:Repository")
        return record.inputs["location"], record.inputs["repositoryId"]

    assert place() == ("us-central1", "gke-dist")
    assert place(name="other", zone="europe-west4-b") == ("europe-west4", "other")
    assert place(registry={"host": "us-docker.pkg.dev"}) == ("us", "gke-dist")


def test_gke_repository_by_default_keeps_100_images() -> None:
    (record,) = graph(gke())[0].of_type("repository:Repository")
    (keep,) = [each for each in record.inputs["cleanupPolicies"] if each["action"] == "KEEP"]
    assert keep["mostRecentVersions"] == {"keepCount": 100}


@pytest.mark.parametrize(
    ("registry", "prefix"),
    [
        ({"host": "gcr.io"}, "gcr.io/some-project"),
        ({"repository": "shared"}, "us-central1-docker.pkg.dev/some-project/shared"),
    ],
)
def test_gke_other_repository_does_not_belong_to_the_stack(registry: dict[str, Any], prefix: str) -> None:
    engine, _ = graph(gke(registry=registry), [{"name": "a", "recipe": "digits"}])
    assert engine.of_type("repository:Repository") == []
    (reader,) = [each for each in bindings(engine) if each.inputs["role"] == "roles/artifactregistry.reader"]
    assert reader.type == "gcp:projects/iAMMember:IAMMember"
    assert reader.inputs["member"] == "serviceAccount:gke-dist-nodes@some-project.iam.gserviceaccount.com"
    (image,) = engine.of_type("index:Image")
    assert image.inputs["tags"] == [f"{prefix}/sh22-dist-gpu:main"]
    assert "registry-nodes" in engine.dependencies("image-build")


def test_gke_maintenance_window_spans_midnight() -> None:
    window = cluster(maintenance={"start_hour": 20, "hours": 8})["maintenancePolicy"]["recurringWindow"]
    assert (window["startTime"], window["endTime"]) == ("2026-01-01T20:00:00Z", "2026-01-02T04:00:00Z")
    assert window["recurrence"] == "FREQ=WEEKLY;BYDAY=SA,SU"


def test_gke_pool_is_deleted_before_replacement(engine: RecordingEngine) -> None:
    assert engine.requests["gpus-nodes"].deleteBeforeReplace is True


def pod_on(platform: dict[str, Any], **job: Any) -> dict[str, Any]:
    """Return the pod of a job of two hosts."""
    program = {} if "script" in job else {"recipe": "digits"}
    engine, _ = graph(platform, [{"name": "a", "hosts": 2, **program, **job}])
    return engine.job_pod()


def test_gke_job_requests_gpus_of_its_nodes() -> None:
    job = {"name": "a", "recipe": "digits", "hosts": 2, "accelerator": "nvidia-tesla-t4", "accelerators_per_host": 2}
    engine, exported = graph(gke(), [job])
    pod = engine.job_pod()
    assert pod["nodeSelector"] == {"cloud.google.com/gke-accelerator": "nvidia-tesla-t4", "trainyard.dev/pool": "gpus"}
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in pod["tolerations"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "2"
    assert container["image"] == f"{IMAGE}:main@sha256:{'0' * 64}"
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


def test_gke_launcher_of_mpi_job_on_a3_has_no_network_annotations() -> None:
    # The launcher runs on a node without these networks.
    gpus = {"accelerator": "nvidia-h100-80gb", "accelerators_per_host": 8}
    job = {"name": "a", "kind": "mpi-job", "script": "/a.py", "image": "example.com/a:1", "hosts": 2, **gpus}
    engine, _ = graph(gke(A3), [job])
    (record,) = engine.of_type("kubeflow.org/v2beta1:MPIJob")
    roles = record.inputs["spec"]["mpiReplicaSpecs"]
    annotations = {role: set(each["template"]["metadata"]["annotations"]) for role, each in roles.items()}
    assert annotations["Worker"] - annotations["Launcher"] == {
        "networking.gke.io/default-interface",
        "networking.gke.io/interfaces",
    }


@pytest.mark.parametrize(
    ("machine", "gpu"), [("a3-ultragpu-8g", "nvidia-h200-141gb"), ("a4-highgpu-8g", "nvidia-b200")]
)
def test_gke_job_with_rdma_sources_nccl_environment_script(machine: str, gpu: str) -> None:
    platform = gke({"machine_type": machine, "capacity": "spot"}, zone="us-central1-b")
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


@pytest.mark.parametrize(
    ("machine", "gpu"), [("a3-highgpu-8g", "nvidia-h100-80gb"), ("n1-standard-4", "nvidia-tesla-t4")]
)
def test_gke_job_without_rdma_runs_python_directly(machine: str, gpu: str) -> None:
    platform = gke({"machine_type": machine, "accelerator": gpu})
    (container,) = pod_on(platform, accelerator=gpu, accelerators_per_host=2)["containers"]
    assert container["command"] == ["python"]
    assert graph(platform)[0].of_type(":PersistentVolume") == []


@pytest.mark.parametrize(
    ("job", "paths"),
    [
        ({}, ["/usr/local/nvidia/lib64"]),
        ({"environment": {"LD_LIBRARY_PATH": "/opt"}}, ["/opt"]),
        # A user's image may search more paths and sets them itself.
        ({"image": "example.com/a:1", "script": "train.py"}, []),
    ],
    ids=["trainer image", "path of the user", "image of the user"],
)
def test_gke_job_of_trainer_image_finds_driver(job: dict[str, Any], paths: list[str]) -> None:
    (container,) = pod_on(gke(), accelerator="nvidia-tesla-t4", accelerators_per_host=2, **job)["containers"]
    assert [each["value"] for each in container["env"] if each["name"] == "LD_LIBRARY_PATH"] == paths


def test_gke_tpu_job_runs_xla_image() -> None:
    job = {"name": "a", "recipe": "digits", "accelerator": "v4-32"}
    engine, exported = graph(gke({"accelerator": "v4-32"}, zone="us-central2-b"), [job])
    images = {record.name: record.inputs for record in engine.of_type("index:Image")}
    assert list(images) == ["image-xla-build"], "only images that jobs run must be built"
    assert images["image-xla-build"]["dockerfile"]["location"].endswith("trainer/Dockerfile.xla")
    assert images["image-xla-build"]["platforms"] == ["linux/amd64"]
    (container,) = engine.job_pod()["containers"]
    assert container["image"] == f"{IMAGE.replace('central1', 'central2')}:main-xla@sha256:{'0' * 64}"
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
    assert records["old"].startswith(f"{IMAGE}:main-cuda12@")
    assert records["new"].startswith(f"{IMAGE}:main@")


def test_gke_job_with_requirements_runs_image_over_trainer_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    monkeypatch.setattr(cloud_image, "LAYER_CONTEXTS", tmp_path / "packages")
    (tmp_path / "requirements.txt").write_text("cowsay==6.1\n", encoding="utf-8")
    job = {"name": "a", "recipe": "imagenet", "requirements": "requirements.txt", "data": "flowers"}
    engine, exported = graph(gke({"machine_type": "n2-standard-8"}), [job])
    images = {record.name: record.inputs for record in engine.of_type("index:Image")}
    (name,) = images.keys() - {"image-build"}
    digest = hashlib.sha256(b"cowsay==6.1\n").hexdigest()[:12]
    reference = f"{IMAGE}:main"
    assert images[name]["tags"] == [f"{reference}-trainer-with-{digest}"]
    assert images[name]["buildArgs"] == {"BASE_IMAGE": f"{reference}@sha256:{'0' * 64}"}
    assert images[name]["platforms"] == images["image-build"]["platforms"]
    context = Path(images[name]["context"]["location"])
    assert (context / "requirements.txt").read_text(encoding="utf-8") == "cowsay==6.1\n"
    (container,) = engine.job_pod()["containers"]
    assert container["image"] == exported["run_records"]["a"]["image"] == f"{images[name]['tags'][0]}@sha256:{'0' * 64}"
    environment = {each["name"]: each.get("value") for each in container["env"]}
    assert environment["TRAINYARD_DATA"] == "$(TRAINYARD_BUCKET)/flowers"


def test_gke_job_on_v100_runs_prebuilt_image() -> None:
    prebuilt = f"example.com/a@sha256:{'1' * 64}"
    pool = {"accelerator": "nvidia-tesla-v100", "accelerators_per_node": 1}
    job = {"name": "a", "recipe": "imagenet", "accelerator": "nvidia-tesla-v100"}
    engine, exported = graph(gke(pool, image={"prebuilt": prebuilt}), [job])
    assert engine.of_type("index:Image") == []
    assert exported["run_records"]["a"]["image"] == prebuilt


def test_gke_job_with_user_image_builds_no_image() -> None:
    engine, exported = graph(gke({"name": "gpus"}), [{"name": "a", "script": "/a.py", "image": "example.com/a:1"}])
    assert engine.of_type("index:Image") == []
    assert exported["image"] == ""
