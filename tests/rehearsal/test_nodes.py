"""Simulated nodes: their labels, taints and capacity, GKE's variables for TPU pods, and the pods that fit a node."""

from __future__ import annotations

from typing import Any

from infra.hardware.ec2 import ec2_machine
from simulation.cloud.gcp import max_nodes, nodes_per_zone
from simulation.cluster.effects import eks_nodes, gke_nodes
from simulation.cluster.kubelet import expand_references
from simulation.cluster.tpu_webhook import COMPLETION_INDEX, patches, tpu_environment
from simulation.placement import node_fits_pod
from tests.rehearsal.valid_inputs import NODE_GROUP, T4_POOL, TPU_POOL


def test_gke_gpu_nodes_have_labels_and_taints() -> None:
    first, second = gke_nodes(T4_POOL, 2)
    assert first["metadata"]["name"] != second["metadata"]["name"]
    assert first["metadata"]["labels"]["cloud.google.com/gke-accelerator"] == "nvidia-tesla-t4"
    assert first["metadata"]["labels"]["topology.kubernetes.io/zone"] == "us-central1-a"
    assert first["status"]["allocatable"]["nvidia.com/gpu"] == "2"
    assert {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"} in first["spec"]["taints"]


def test_gke_gpu_nodes_have_no_taint_if_all_pools_have_gpus() -> None:
    [node] = gke_nodes(T4_POOL, 1, only_accelerators=True)
    assert node["spec"]["taints"] == []


def test_gke_nodes_are_spread_over_zones() -> None:
    nodes = gke_nodes({**T4_POOL, "nodeLocations": ["us-central1-a", "us-central1-b"]}, 3)
    zones = [each["metadata"]["labels"]["topology.kubernetes.io/zone"] for each in nodes]
    assert zones == ["us-central1-a", "us-central1-a", "us-central1-b"]
    assert len({each["metadata"]["name"] for each in nodes}) == 3


def test_nodes_per_zone_divides_a_minimum_of_all_zones() -> None:
    scaling = {"totalMinNodeCount": 2, "totalMaxNodeCount": 3}
    pool = {**T4_POOL, "nodeLocations": ["us-central1-a", "us-central1-b"], "nodeCount": None, "autoscaling": scaling}
    assert (nodes_per_zone(pool), max_nodes(pool)) == (1, 3)
    pool["autoscaling"] = {"totalMinNodeCount": 3, "totalMaxNodeCount": 3}
    assert nodes_per_zone(pool) == 1, "no pool may begin above its maximum"


def test_gke_tpu_nodes_have_slice_and_topology() -> None:
    nodes = gke_nodes(TPU_POOL, 4)
    assert len(nodes) == 4
    labels = nodes[0]["metadata"]["labels"]
    assert labels["cloud.google.com/gke-tpu-accelerator"] == "tpu-v4-podslice"
    assert labels["cloud.google.com/gke-tpu-topology"] == "2x2x4"
    assert labels["cloud.google.com/gke-spot"] == "true"
    assert nodes[0]["status"]["capacity"]["google.com/tpu"] == "4"


def test_eks_nodes_are_spread_over_zones() -> None:
    nodes = eks_nodes(NODE_GROUP, ec2_machine("g4dn.12xlarge"), ["us-west-2a", "us-west-2b"], 1)
    assert [each["metadata"]["labels"]["topology.kubernetes.io/zone"] for each in nodes] == ["us-west-2a", "us-west-2b"]
    assert nodes[0]["status"]["allocatable"]["nvidia.com/gpu"] == "4"
    assert nodes[0]["status"]["allocatable"]["vpc.amazonaws.com/efa"] == "1"


def tpu_pod(index: int, **labels: str) -> dict[str, Any]:
    """Return the pod of one host of a v4-32 slice."""
    selector = {"cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice", "cloud.google.com/gke-tpu-topology": "2x2x4"}
    resources = {"limits": {"google.com/tpu": "4"}}
    return {
        "metadata": {
            "annotations": {COMPLETION_INDEX: str(index)},
            "labels": {"batch.kubernetes.io/job-name": "spmd", **labels},
        },
        "spec": {
            "nodeSelector": selector,
            "subdomain": "spmd",
            "containers": [{"name": "trainer", "resources": resources, "env": [{"name": "MINE", "value": "1"}]}],
        },
    }


def test_tpu_environment_has_rank_and_ordered_hosts() -> None:
    found = tpu_environment(tpu_pod(2))
    assert found["TPU_WORKER_ID"] == "2"
    assert found["TPU_WORKER_HOSTNAMES"] == "spmd-0.spmd,spmd-1.spmd,spmd-2.spmd,spmd-3.spmd"
    assert found["TPU_ACCELERATOR_TYPE"] == "v4-32"


def test_patches_keep_variables_of_the_container() -> None:
    pod = tpu_pod(2)
    pod["spec"]["containers"][0]["env"].append({"name": "TPU_WORKER_ID", "value": "9"})
    [patch] = patches(pod)
    assert [each["value"] for each in patch["value"] if each["name"] == "TPU_WORKER_ID"] == ["9"]
    assert patch["op"] == "replace"


def test_tpu_environment_of_a_jobset_connects_its_slices() -> None:
    prefix = "jobset.sigs.k8s.io"
    labels = {f"{prefix}/jobset-name": "multi", f"{prefix}/replicatedjob-name": "worker", f"{prefix}/job-index": "1"}
    pod = tpu_pod(0, **labels)
    pod["metadata"]["annotations"] |= {
        "alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool",
        f"{prefix}/replicatedjob-replicas": "2",
    }
    found = tpu_environment(pod)
    assert (found["MEGASCALE_NUM_SLICES"], found["MEGASCALE_SLICE_ID"]) == ("2", "1")
    assert found["MEGASCALE_COORDINATOR_ADDRESS"] == "multi-worker-0-0.spmd:8080"


def test_patches_of_pods_without_tpus_are_empty() -> None:
    pod = tpu_pod(0)
    pod["spec"]["containers"][0]["resources"] = {}
    assert patches(pod) == []


def test_node_fits_pod_checks_selector_taints_and_requests() -> None:
    [node] = gke_nodes(T4_POOL, 1)
    toleration = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}

    def pod(gpus: str, tolerations: list[dict[str, str]], pool: str = "gpus") -> dict[str, Any]:
        requests = {"cpu": "3", "nvidia.com/gpu": gpus}
        return {
            "spec": {
                "nodeSelector": {"cloud.google.com/gke-nodepool": pool},
                "tolerations": tolerations,
                "containers": [{"resources": {"requests": requests}}],
            }
        }

    assert node_fits_pod(node, pod("2", [toleration]))
    assert not node_fits_pod(node, pod("3", [toleration]))
    assert not node_fits_pod(node, pod("2", []))
    assert not node_fits_pod(node, pod("2", [toleration], pool="others"))


def test_expand_references_replaces_variables() -> None:
    variables = {"HERE": "operators"}
    assert expand_references("-lock-namespace=$(HERE)", variables) == "-lock-namespace=operators"
    assert expand_references("$(THERE) $$(HERE) $HERE", variables) == "$(THERE) $(HERE) $HERE"
