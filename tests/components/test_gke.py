"""The graph of a GKE platform against Pulumi mocks: what an expert looks for in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.components.cloud_program import graph
from tests.recording import Record, RecordingEngine

A3 = {"machine_type": "a3-highgpu-8g"}


def gke(*pools: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A GKE platform with its pools."""
    named = [{"name": f"pool-{index}", **pool} for index, pool in enumerate(pools)]
    return {"kind": "gke", **({"pools": named} if pools else {}), **changes}


def pools(platform: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The node pools that a platform's settings make, the system pool apart."""
    engine, _ = graph(platform)
    found = {record.inputs["name"]: record.inputs for record in engine.of_type("nodePool:NodePool")}
    assert found.pop("system")
    return found


def pool(**keys: Any) -> dict[str, Any]:
    """The one node pool of one pool."""
    platform = {key.removeprefix("platform_"): keys.pop(key) for key in list(keys) if key.startswith("platform_")}
    (found,) = pools(gke(keys, **platform)).values()
    return found


def cluster(**changes: Any) -> dict[str, Any]:
    """The control plane."""
    (record,) = graph(gke(**changes))[0].of_type("cluster:Cluster")
    return record.inputs


@pytest.fixture(scope="module")
def engine() -> RecordingEngine:
    """The graph of the walk-through."""
    return graph(gke())[0]


def bindings(engine: RecordingEngine) -> list[Record]:
    """Every grant of a role."""
    return [record for record in engine.records if "Member" in record.type and record.type.startswith("gcp:")]


def test_the_walk_through() -> None:
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
    assert gpu["gpuDriverInstallationConfig"] == {"gpuDriverVersion": "DEFAULT"}
    assert "autoscaling" not in found
    assert cluster()["name"] == "gke-dist"


def test_no_node_has_a_public_address(engine: RecordingEngine) -> None:
    assert cluster()["privateClusterConfig"]["enablePrivateNodes"] is True
    for record in engine.of_type("nodePool:NodePool"):
        assert record.inputs["networkConfig"]["enablePrivateNodes"] is True
    (network,) = engine.of_type("network:Network")
    assert network.inputs["autoCreateSubnetworks"] is False


def test_the_api_server_is_reached_by_name_or_from_listed_networks_alone() -> None:
    closed, listed = cluster(), cluster(authorized_networks=["198.51.100.0/24"])
    assert closed["privateClusterConfig"]["enablePrivateEndpoint"] is True
    assert closed["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["allowExternalTraffic"] is True
    assert closed["masterAuthorizedNetworksConfig"] == {"cidrBlocks": [], "gcpPublicCidrsAccessEnabled": False}
    assert listed["controlPlaneEndpointsConfig"]["dnsEndpointConfig"]["allowExternalTraffic"] is False
    assert listed["masterAuthorizedNetworksConfig"]["cidrBlocks"] == [{"cidrBlock": "198.51.100.0/24"}]


def test_the_kubeconfig_holds_no_credentials() -> None:
    (provider,) = graph(gke())[0].of_type("providers:kubernetes")
    by_name = yaml.safe_load(provider.inputs["kubeconfig"])
    assert by_name["clusters"][0]["cluster"] == {"server": "https://gke-1.us-central1.gke.goog"}
    assert by_name["users"][0]["user"]["exec"]["command"] == "gke-gcloud-auth-plugin"
    (provider,) = graph(gke(authorized_networks=["198.51.100.0/24"]))[0].of_type("providers:kubernetes")
    by_address = yaml.safe_load(provider.inputs["kubeconfig"])
    assert by_address["clusters"][0]["cluster"] == {
        "server": "https://203.0.113.7",
        "certificate-authority-data": "Q0E=",
    }
    assert by_address["current-context"] == "gke_wandb-client-cicd_us-central1-a_gke-dist"


def test_nobody_is_the_default_service_account(engine: RecordingEngine) -> None:
    nodes = "gke-dist-nodes@wandb-client-cicd.iam.gserviceaccount.com"
    for record in engine.of_type("nodePool:NodePool"):
        assert record.inputs["nodeConfig"]["serviceAccount"] == nodes
        assert record.inputs["nodeConfig"]["workloadMetadataConfig"] == {"mode": "GKE_METADATA"}
    # The pool that GKE makes with the cluster and that is removed at once, too.
    assert cluster()["nodeConfig"]["serviceAccount"] == nodes
    assert cluster()["removeDefaultNodePool"] is True


def test_roles_are_the_least(engine: RecordingEngine) -> None:
    granted = {(record.inputs["role"], record.type.split("/")[0]) for record in bindings(engine)}
    assert granted == {
        ("roles/container.defaultNodeServiceAccount", "gcp:projects"),
        ("roles/iam.workloadIdentityUser", "gcp:serviceaccount"),
        ("roles/storage.objectUser", "gcp:storage"),
        ("roles/artifactregistry.reader", "gcp:artifactregistry"),
    }
    assert all("allUsers" not in record.inputs["member"] for record in bindings(engine))


def test_jobs_may_touch_their_bucket_and_nothing_else(engine: RecordingEngine) -> None:
    (annotated,) = engine.of_type(":ServiceAccount")
    account = annotated.inputs["metadata"]["annotations"]["iam.gke.io/gcp-service-account"]
    own = [record for record in bindings(engine) if account in record.inputs["member"]]
    assert [(record.inputs["bucket"], record.inputs["role"]) for record in own] == [
        ("gke-dist-bucket-0123456", "roles/storage.objectUser")
    ]
    (user,) = engine.of_type("serviceaccount/iAMMember:IAMMember")
    assert user.inputs["member"] == "serviceAccount:wandb-client-cicd.svc.id.goog[training/trainer]"
    assert account in user.inputs["serviceAccountId"]


def test_the_bucket_is_private_and_kept(engine: RecordingEngine) -> None:
    (bucket,) = engine.of_type("bucket:Bucket")
    assert bucket.inputs["publicAccessPrevention"] == "enforced"
    assert bucket.inputs["uniformBucketLevelAccess"] is True
    assert bucket.inputs["hierarchicalNamespace"] == {"enabled": True}
    assert bucket.inputs["softDeletePolicy"] == {"retentionDurationSeconds": 7 * 86400}
    assert bucket.inputs["forceDestroy"] is False
    assert engine.requests[bucket.name].retainOnDelete is True
    gone = graph(gke(bucket={"keep": False}))[0]
    (bucket,) = gone.of_type("bucket:Bucket")
    assert bucket.inputs["forceDestroy"] is True
    assert gone.requests[bucket.name].retainOnDelete is False


def test_checkpoints_are_deleted_only_when_told() -> None:
    def prefixes(**bucket: Any) -> list[list[str]]:
        (record,) = graph(gke(bucket=bucket))[0].of_type("bucket:Bucket")
        return [rule["condition"].get("matchesPrefixes", []) for rule in record.inputs["lifecycleRules"]]

    assert prefixes() == [["profiles/"], []]
    assert prefixes(checkpoint_days=90) == [["profiles/"], ["checkpoints/"], []]


def test_nodes_are_shielded(engine: RecordingEngine) -> None:
    shielded = {"enableIntegrityMonitoring": True, "enableSecureBoot": True}
    for record in engine.of_type("nodePool:NodePool"):
        assert record.inputs["nodeConfig"]["shieldedInstanceConfig"] == shielded
    assert cluster()["nodeConfig"]["shieldedInstanceConfig"] == shielded
    assert cluster()["enableShieldedNodes"] is True


def test_secrets_are_encrypted_with_the_key_that_is_given() -> None:
    key = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
    assert cluster(secrets_key=key)["databaseEncryption"] == {"state": "ENCRYPTED", "keyName": key}
    assert "databaseEncryption" not in cluster()


def test_everything_waits_for_what_it_needs(engine: RecordingEngine) -> None:
    def needs(name: str) -> set[str]:
        return {urn.rpartition("::")[2] for urn in engine.requests[name].dependencies}

    assert "system-nodes" in needs("gpus-nodes")
    assert {"network-nat", "network-subnet", "nodes-role"} <= needs("cluster-control-plane")
    assert "cluster-control-plane" in needs("system-nodes")
    assert "system-nodes" in needs("kubernetes")
    assert any(name.startswith("services-") for name in needs("network-vpc"))


def test_what_is_in_the_cluster_goes_with_it() -> None:
    engine, _ = graph(gke(), [{"name": "a", "recipe": "digits", "accelerator": "nvidia-tesla-t4"}])
    for name in ("kubernetes", "training", "a"):
        assert "cluster-control-plane" in engine.requests[name].deletedWith


def test_time_outs_fit_the_cloud(engine: RecordingEngine) -> None:
    assert engine.requests["gpus-nodes"].customTimeouts.create == "120m"
    assert engine.requests["network-vpc"].customTimeouts.delete == "20m"
    assert engine.requests["cluster-control-plane"].customTimeouts.create == "60m"


def test_pools_are_replaced_in_place(engine: RecordingEngine) -> None:
    assert engine.requests["gpus-nodes"].deleteBeforeReplace is True


TPU_V4 = {"accelerator": "v4-32", "platform_zone": "us-central2-b"}


def test_a_multi_host_slice() -> None:
    found = pool(**TPU_V4, capacity="spot")
    assert found["placementPolicy"] == {"type": "COMPACT", "tpuTopology": "2x2x4"}
    assert (found["nodeCount"], found["nodeConfig"]["machineType"]) == (4, "ct4p-hightpu-4t")
    assert found["nodeConfig"]["spot"] is True
    assert found["nodeLocations"] == ["us-central2-b"]
    # A host type of its own needs no GPU, and E2 is not in this zone.
    assert "guestAccelerators" not in found["nodeConfig"]
    (record,) = graph(gke({"accelerator": "v4-32"}, zone="us-central2-b"))[0].of_type("cluster:Cluster")
    assert record.inputs["nodeConfig"]["machineType"] == "n1-standard-8"


def test_a_slice_that_scales_says_so_for_its_zone() -> None:
    scaling = pool(**TPU_V4, min_nodes=0)["autoscaling"]
    assert scaling == {"minNodeCount": 0, "maxNodeCount": 4, "locationPolicy": "ANY"}
    gpus = pool(min_nodes=0)["autoscaling"]
    assert gpus == {"totalMinNodeCount": 0, "totalMaxNodeCount": 2, "locationPolicy": "ANY"}


def test_single_tpu_hosts_have_no_topology() -> None:
    found = pool(accelerator="v5litepod-8", platform_zone="us-west4-a", slices=3)
    assert "placementPolicy" not in found
    assert (found["nodeCount"], found["nodeConfig"]["machineType"]) == (3, "ct5lp-hightpu-8t")


def test_every_slice_of_several_hosts_is_a_pool() -> None:
    found = pools(gke({"accelerator": "v6e-16", "slices": 2}, zone="us-east5-a"))
    assert {name: inputs["nodeCount"] for name, inputs in found.items()} == {"pool-0-0": 4, "pool-0-1": 4}


def test_ironwood_gets_a_workload_policy() -> None:
    engine, _ = graph(gke({"accelerator": "v7x", "topology": "2x4x4"}, zone="us-central1-c"))
    (policy,) = engine.of_type("resourcePolicy:ResourcePolicy")
    assert policy.inputs["workloadPolicy"] == {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "2x4x4"}
    (found,) = (record for record in engine.of_type("nodePool:NodePool") if record.inputs["name"] == "pool-0")
    assert found.inputs["placementPolicy"] == {"type": "COMPACT", "policyName": policy.inputs["name"]}


def test_flex_start() -> None:
    found = pool(**A3, nodes=1, capacity="flex-start")
    config = found["nodeConfig"]
    assert (config["flexStart"], config["maxRunDuration"]) == (True, "604800s")
    assert config["reservationAffinity"] == {"consumeReservationType": "NO_RESERVATION"}
    assert found["management"] == {"autoRepair": False, "autoUpgrade": True}
    assert found["autoscaling"]["totalMinNodeCount"] == 0
    assert found["upgradeSettings"] == {"strategy": "SHORT_LIVED"}
    assert "placementPolicy" not in found
    assert pool(**A3, nodes=1)["management"]["autoRepair"] is True


def test_queued_provisioning() -> None:
    found = pool(**A3, nodes=1, capacity="queued")
    assert found["queuedProvisioning"] == {"enabled": True}
    assert found["nodeConfig"]["labels"]["cloud.google.com/gke-queued"] == "true"
    assert found["nodeConfig"]["taints"] == [
        {"key": "cloud.google.com/gke-queued", "value": "true", "effect": "NO_SCHEDULE"}
    ]


def test_a_reservation_by_block() -> None:
    name = "projects/p/reservations/r/reservationBlocks/b/reservationSubBlocks/s"
    assert pool(**A3, capacity=f"reservation:{name}")["nodeConfig"]["reservationAffinity"] == {
        "consumeReservationType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": [name],
    }


def test_a_ladder_is_a_compute_class() -> None:
    platform = gke({**A3, "nodes": 1, "capacity": ["reservation:r", "flex-start", "spot"]})
    engine, _ = graph(platform)
    (ladder,) = engine.of_type("ComputeClass")
    names = ["pool-0-0-reservation", "pool-0-1-flex-start", "pool-0-2-spot"]
    assert ladder.inputs["spec"]["priorities"] == [{"nodepools": [name]} for name in names]
    for name, inputs in pools(platform).items():
        assert inputs["nodeConfig"]["labels"]["cloud.google.com/compute-class"] == "pool-0", name
        assert inputs["nodeConfig"]["taints"][0]["value"] == "pool-0"
        assert inputs["autoscaling"]["totalMinNodeCount"] == 0


def test_a_ladder_across_zones() -> None:
    platform = gke(
        {"accelerator": "v6e-16", "capacity": ["flex-start", "spot"], "zones": ["us-east5-a", "us-east5-b"]},
        zone="us-east5-a",
    )
    engine, _ = graph(platform)
    (ladder,) = engine.of_type("ComputeClass")
    assert ladder.inputs["spec"]["priorities"] == [
        {"nodepools": ["pool-0-0-flex-start-a", "pool-0-0-flex-start-b"]},
        {"nodepools": ["pool-0-1-spot-a", "pool-0-1-spot-b"]},
    ]
    assert all(len(inputs["nodeLocations"]) == 1 for inputs in pools(platform).values())


@pytest.mark.parametrize(
    ("machine", "zone", "vpcs", "interfaces", "mtu"),
    [
        ("a3-highgpu-8g", "us-central1-a", 4, 4, 8244),
        ("a3-megagpu-8g", "us-central1-a", 8, 8, 8244),
        ("a3-ultragpu-8g", "us-central1-b", 2, 9, 8896),
        ("a4-highgpu-8g", "us-central1-b", 2, 9, 8896),
    ],
)
def test_networks_between_gpus(machine: str, zone: str, vpcs: int, interfaces: int, mtu: int) -> None:
    platform = gke({"machine_type": machine}, zone=zone)
    engine, _ = graph(platform)
    further = [record for record in engine.of_type("network:Network") if record.name.startswith("fabric")]
    assert len(further) == vpcs
    assert {record.inputs["mtu"] for record in further} == {mtu}
    (found,) = pools(platform).values()
    assert len(found["networkConfig"]["additionalNodeNetworkConfigs"]) == interfaces
    assert len(engine.of_type("networking.gke.io/v1:Network")) == interfaces
    assert cluster_of(engine)["enableMultiNetworking"] is True
    ranges = [record.inputs["ipCidrRange"] for record in engine.of_type("subnetwork:Subnetwork")]
    assert len(set(ranges)) == len(ranges) == interfaces + 1
    profiles = [record.inputs["networkProfile"] for record in further if "networkProfile" in record.inputs]
    assert all(profile.endswith(f"{zone}-vpc-roce") for profile in profiles)
    assert bool(profiles) == (mtu == 8896)


def cluster_of(engine: RecordingEngine) -> dict[str, Any]:
    """The control plane of a graph."""
    (record,) = engine.of_type("cluster:Cluster")
    return record.inputs


def test_one_host_needs_no_further_networks() -> None:
    found = pool(**A3, nodes=1)
    assert found["networkConfig"]["additionalNodeNetworkConfigs"] == []
    assert "placementPolicy" not in found
    assert pool(**A3)["placementPolicy"] == {"type": "COMPACT"}


def test_disks_that_a_machine_takes() -> None:
    assert pool(machine_type="a3-ultragpu-8g", platform_zone="us-central1-b")["nodeConfig"]["diskType"] == (
        "hyperdisk-balanced"
    )
    assert pool(**A3)["nodeConfig"]["ephemeralStorageLocalSsdConfig"] == {"localSsdCount": 16}


def test_a_job_gets_what_its_nodes_have() -> None:
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
    assert container["image"] == f"gcr.io/wandb-client-cicd/sh22-dist-gpu:main@sha256:{'0' * 64}"
    assert {"name": "TRAINYARD_BUCKET", "value": "gs://gke-dist-bucket-0123456"} in container["env"]
    assert exported["bucket_url"] == "gs://gke-dist-bucket-0123456"
    assert exported["get_kubeconfig"].startswith("gcloud container clusters get-credentials gke-dist")


def test_a_job_on_a3_names_its_networks() -> None:
    job = {"name": "a", "recipe": "digits", "hosts": 2, "accelerator": "nvidia-h100-80gb", "accelerators_per_host": 8}
    engine, _ = graph(gke(A3), [job])
    (record,) = engine.of_type("batch/v1:Job")
    annotations = record.inputs["spec"]["template"]["metadata"]["annotations"]
    listed = json.loads(annotations["networking.gke.io/interfaces"])
    assert [each["network"] for each in listed] == ["default", *(f"gpu-nic-{index}" for index in range(4))]


def pod_on(platform: dict[str, Any], **job: Any) -> dict[str, Any]:
    """The pod of a job of two hosts."""
    what = {} if "script" in job else {"recipe": "digits"}
    engine, _ = graph(platform, [{"name": "a", "hosts": 2, **what, **job}])
    (record,) = engine.of_type("batch/v1:Job")
    found: dict[str, Any] = record.inputs["spec"]["template"]["spec"]
    return found


@pytest.mark.parametrize(
    ("machine", "gpu"), [("a3-ultragpu-8g", "nvidia-h200-141gb"), ("a4-highgpu-8g", "nvidia-b200")]
)
def test_jobs_with_rdma_start_from_their_hosts_profile(machine: str, gpu: str) -> None:
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


def test_other_jobs_start_as_ever() -> None:
    for machine, gpu in (("a3-highgpu-8g", "nvidia-h100-80gb"), ("n1-standard-4", "nvidia-tesla-t4")):
        platform = gke({"machine_type": machine, "accelerator": gpu})
        (container,) = pod_on(platform, accelerator=gpu, accelerators_per_host=2)["containers"]
        assert container["command"] == ["python"]
        assert graph(platform)[0].of_type(":PersistentVolume") == []


def test_programs_find_the_driver_that_gke_puts_beside_them() -> None:
    found = {"name": "LD_LIBRARY_PATH", "value": "/usr/local/nvidia/lib64"}
    gpus = {"accelerator": "nvidia-tesla-t4", "accelerators_per_host": 2}
    assert found in pod_on(gke(), **gpus)["containers"][0]["env"]
    # An image of the user's may look in further places, and says so itself.
    theirs = pod_on(gke(), **gpus, image="example.com/a:1", script="train.py")
    assert "LD_LIBRARY_PATH" not in {each["name"] for each in theirs["containers"][0]["env"]}
    own = pod_on(gke(), **gpus, environment={"LD_LIBRARY_PATH": "/opt"})["containers"][0]["env"]
    assert [each["value"] for each in own if each["name"] == "LD_LIBRARY_PATH"] == ["/opt"]


def test_a_prebuilt_image_builds_nothing() -> None:
    reference = f"example.com/team/trainer@sha256:{'1' * 64}"
    engine, exported = graph(gke(image={"prebuilt": reference}))
    assert exported["image"] == reference
    assert engine.of_type("index:Image") == []
    assert engine.of_type("repository:Repository") == []


def test_the_image_is_built_for_both_architectures() -> None:
    engine, _ = graph(gke({"name": "gpus"}), [{"name": "a", "recipe": "digits"}])
    (image,) = engine.of_type("index:Image")
    assert image.inputs["platforms"] == ["linux/amd64", "linux/arm64"]
    assert image.inputs["tags"] == ["gcr.io/wandb-client-cicd/sh22-dist-gpu:main"]
    assert image.inputs["buildOnPreview"] is False


def test_a_tpu_job_has_the_image_with_pytorch_xla() -> None:
    job = {"name": "a", "recipe": "digits", "accelerator": "v4-32"}
    engine, exported = graph(gke({"accelerator": "v4-32"}, zone="us-central2-b"), [job])
    images = {record.name: record.inputs for record in engine.of_type("index:Image")}
    assert list(images) == ["image-xla-build"], "no job runs the other"
    assert images["image-xla-build"]["dockerfile"]["location"].endswith("trainer/Dockerfile.xla")
    assert images["image-xla-build"]["platforms"] == ["linux/amd64"]
    (record,) = engine.of_type("batch/v1:Job")
    (container,) = record.inputs["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"gcr.io/wandb-client-cicd/sh22-dist-gpu:main-xla@sha256:{'0' * 64}"
    assert container["image"] == exported["run_records"]["a"]["image"]
    assert exported["image"] == ""


def test_registries() -> None:
    def place(**registry: Any) -> tuple[str, str]:
        (record,) = graph(gke(registry=registry))[0].of_type("repository:Repository")
        return record.inputs["location"], record.inputs["repositoryId"]

    assert place() == ("us", "gcr.io")
    assert place(host="europe-west4-docker.pkg.dev") == ("europe-west4", "trainyard")


def test_maintenance_goes_on_past_midnight() -> None:
    window = cluster(maintenance={"start_hour": 20, "hours": 8})["maintenancePolicy"]["recurringWindow"]
    assert (window["startTime"], window["endTime"]) == ("2026-01-01T20:00:00Z", "2026-01-02T04:00:00Z")
    assert window["recurrence"] == "FREQ=WEEKLY;BYDAY=SA,SU"


def test_jobs_with_images_of_their_own_need_none_built() -> None:
    engine, exported = graph(gke({"name": "gpus"}), [{"name": "a", "script": "/a.py", "image": "example.com/a:1"}])
    assert engine.of_type("index:Image") == []
    assert exported["image"] == ""
