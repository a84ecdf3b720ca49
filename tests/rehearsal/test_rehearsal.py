"""Complete rehearsals with the real engine and scheduler, simulated clouds and kwok nodes. Each must leave nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from commands.rehearse.folder import cluster_settings, rehearsal_folder
from commands.rehearse.report import Report
from commands.rehearse.run import Rehearsal, Subject
from infra.local import leftovers
from tests.local.conftest import port_above

ROOT = Path(__file__).resolve().parents[2]
STACKS = Path(__file__).parent / "stacks"
NAME = f"test-{port_above(0)}"
"""Name of this file's rehearsals, which differs between checkouts."""

# The first rehearsal on a machine builds kwok and an object store. The first with operators builds the operators.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(2400)]


def rehearse(stack: str, *words: str, fails: bool = False) -> dict[str, Any]:
    """Run a rehearsal and return its report. Assert that nothing is left, even after a failure."""
    done = subprocess.run(
        [sys.executable, "-m", "commands.rehearse", stack, "--json", "--name", NAME, *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2000,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout[-3000:] + done.stderr[-5000:]
    assert_nothing_is_left()
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["left"] == []
    return report


def assert_nothing_is_left(name: str = NAME) -> None:
    """Assert that a rehearsal has left no process, cgroup or folder."""
    settings = cluster_settings(name, None)
    assert leftovers.find(settings.folder, settings.cgroup) == []
    assert not rehearsal_folder(name).exists()


def variables(report: dict[str, Any], name: str) -> list[str]:
    """Return the values of an environment variable in the jobs' pods."""
    return [pod["environment"].get(name, "") for pod in report["pods"] if pod["job"]]


def test_dev_stack_has_two_hosts_with_two_gpus_each() -> None:
    report = rehearse("dev")
    assert {pod["node"] for pod in report["pods"]} == {"gke-gke-dist-gpus-a-0", "gke-gke-dist-gpus-a-1"}
    assert report["quota"]["us-central1/NVIDIA_T4_GPUS"] == 4
    assert report["up_seconds"] > 8 * 60, "creating the cluster alone takes 8 simulated minutes"
    assert report["cost"]["gpus"] > 0
    assert report["cost_total"].startswith("$")
    assert report["without_rules"] == []


@pytest.mark.long
def test_autoscaled_pool_across_zones_grows_to_its_maximum() -> None:
    report = rehearse("zones", "--file", str(STACKS / "zones.yaml"))
    zones = Counter(node["zone"] for node in report["nodes"] if node["pool"] == "p")
    assert zones == {"us-central1-a": 2, "us-central1-b": 1}
    assert report["quota"]["us-central1/NVIDIA_L4_GPUS"] == 3
    assert len({pod["node"] for pod in report["pods"] if pod["job"] == "j"}) == 3


@pytest.mark.long
@pytest.mark.parametrize(
    ("stack", "machine", "gpus", "quota"),
    [("gke-v100", "n1-standard-16", "2", {"us-central1/NVIDIA_V100_GPUS": 4}), ("gke-h200", "a3-ultragpu-8g", "8", {})],
    ids=["gke-v100", "gke-h200"],
)
def test_two_hosts_have_all_gpus_of_their_machines(stack: str, machine: str, gpus: str, quota: dict[str, int]) -> None:
    report = rehearse(stack)
    accelerators = {"nvidia.com/gpu": gpus}
    pods = [pod for pod in report["pods"] if pod["job"]]
    assert [pod["accelerators"] for pod in pods] == [accelerators] * 2
    machines = {node["name"]: (node["machine"], node["accelerators"]) for node in report["nodes"]}
    assert [machines[pod["node"]] for pod in pods] == [(machine, accelerators)] * 2
    assert len({pod["node"] for pod in pods}) == 2
    assert quota.items() <= report["quota"].items()
    assert report["problems"] == []


def test_a_v4_32_slice_is_four_pods_of_four_chips() -> None:
    report = rehearse("gke-tpu")
    pods = [pod for pod in report["pods"] if pod["job"] == "spmd"]
    assert [pod["accelerators"] for pod in pods] == [{"google.com/tpu": "4"}] * 4
    assert sorted(variables(report, "TPU_WORKER_ID")) == ["0", "1", "2", "3"]
    [hosts] = set(variables(report, "TPU_WORKER_HOSTNAMES"))
    assert [host.partition(".")[0] for host in hosts.split(",")] == [f"spmd-{rank}" for rank in range(4)]
    assert len({pod["node"] for pod in pods}) == 4


@pytest.mark.long
def test_multislice_job_has_one_slice_per_job() -> None:
    report = rehearse("multi", "--file", str(STACKS / "multislice.yaml"))
    pools = {node["name"]: node["pool"] for node in report["nodes"]}
    by_slice: dict[str, set[str]] = {}
    for pod in report["pods"]:
        if pod["job"]:
            by_slice.setdefault(pod["environment"]["MEGASCALE_SLICE_ID"], set()).add(pools[pod["node"]])
    assert sorted(by_slice) == ["0", "1"]
    assert all(len(found) == 1 for found in by_slice.values())
    assert by_slice["0"] != by_slice["1"]


@pytest.mark.long
def test_queued_jobs_are_admitted_in_turn() -> None:
    # Three jobs each request every GPU, so one runs and two wait.
    report = rehearse("queue", "--file", str(STACKS / "queue.yaml"))
    assert Counter(pod["job"] for pod in report["pods"] if pod["job"]) == {"indexed": 2, "set": 2, "mpi": 3, "free": 1}
    assert all(pod["node"] for pod in report["pods"])
    pools = {node["name"]: node["pool"] for node in report["nodes"]}
    hosts = [pod for pod in report["pods"] if pod["accelerators"]]
    assert {pools[pod["node"]] for pod in hosts} == {"t4"}
    assert len(hosts) == 6
    assert len(report["waited"]) == 2
    assert set(report["waited"]) < {"indexed", "set", "mpi"}


@pytest.mark.long
@pytest.mark.parametrize(("kind", "named_hosts"), [("pytorch-job", 1), ("train-job", 2)])
def test_queued_provisioning_creates_all_nodes_at_once(kind: str, named_hosts: int, tmp_path: Path) -> None:
    # As on GKE, Kueue's request creates the nodes of queued provisioning; pending pods create none. Kueue creates one
    # request for a master and its workers, and names the request only in the master.
    stack = tmp_path / "stack.yaml"
    text = (STACKS / "queued-provisioning.yaml").read_text(encoding="utf-8")
    stack.write_text(text.replace("kind: pytorch-job", f"kind: {kind}"), encoding="utf-8")
    report = rehearse("later", "--file", str(stack))
    pools = {node["name"]: node["pool"] for node in report["nodes"]}
    hosts = [pod for pod in report["pods"] if pod["job"] == "large"]
    assert [pools[pod["node"]] for pod in hosts] == ["a2", "a2"]
    requests = [pod["provisioning_request"] for pod in hosts if pod["provisioning_request"]]
    assert len(requests) == named_hosts
    assert requests[0].startswith(f"{kind.replace('-', '')}-large-")
    assert set(requests) == {requests[0]}
    assert report["waited"] == []


def test_eks_operators_create_and_place_pods() -> None:
    report = rehearse("eks")
    nodes = {pod["name"]: pod["node"] for pod in report["pods"] if pod["job"]}
    jobs = Counter(pod["job"] for pod in report["pods"] if pod["job"])
    assert jobs == {"mpi": 3, "pytorch": 2, "mxnet": 4}
    hosts = {name: node.partition(".")[0] for name, node in nodes.items()}
    assert {hosts["pytorch-master-0"], hosts["pytorch-worker-0"]} == {"eks-dist-t4-0", "eks-dist-t4-1"}
    for job in ("mpi", "mxnet"):
        assert {hosts[f"{job}-worker-{index}"] for index in (0, 1)} <= {"eks-dist-cpu-0", "eks-dist-cpu-1"}


@pytest.mark.long
def test_hosts_of_a_ray_job_have_the_gpus_and_its_head_has_none() -> None:
    report = rehearse("ray", "--file", str(STACKS / "ray.yaml"))
    pools = {node["name"]: node["pool"] for node in report["nodes"]}
    pods = [pod for pod in report["pods"] if pod["job"] == "ray"]
    assert Counter((pools[pod["node"]], str(pod["accelerators"])) for pod in pods) == {
        ("t4", str({"nvidia.com/gpu": "2"})): 2,
        ("system", "{}"): 2,
    }
    assert report["problems"] == []


@pytest.mark.parametrize(
    "fault",
    [
        "crash:nodepool",
        *(
            pytest.param(each, marks=pytest.mark.long)
            for each in ("stockout:nodepool", "timeout:cluster", "eventual:account")
        ),
    ],
)
def test_after_a_fault_a_second_up_converges(fault: str) -> None:
    report = rehearse("dev", "--fault", fault)
    assert report["problems"] == []
    assert len(report["pods"]) == 2


@pytest.mark.long
def test_after_a_stockout_on_eks_a_second_up_replaces_the_node_group() -> None:
    report = rehearse("eks", "--fault", "stockout:nodegroup:t4")
    assert report["problems"] == []
    assert {node["pool"] for node in report["nodes"]} == {"system", "t4", "cpu"}


def test_too_small_quota_fails_the_rehearsal_with_the_quotas_name() -> None:
    report = rehearse("dev", "--quota", "us-central1/NVIDIA_T4_GPUS=2", fails=True)
    first, *reasons = report["problems"]
    assert first == "`pulumi up` failed"
    assert any("NodePool" in each and "NVIDIA_T4_GPUS" in each for each in reasons), reasons
    assert report["up_failed"]
    assert report["resources"]["gcp:container/cluster:Cluster"]


POD_WITHOUT_NODE_PROGRAM = """
import pulumi, pulumi_gcp as gcp, pulumi_kubernetes as k8s
on = {"project": "some-project"}
apis = [gcp.projects.Service(n, service=f"{n}.googleapis.com", **on) for n in ("compute", "container", "iam")]
after = pulumi.ResourceOptions(depends_on=apis)
account = gcp.serviceaccount.Account("nodes", account_id="train-nodes", opts=after, **on)
vpc = gcp.compute.Network("vpc", auto_create_subnetworks=False, opts=after, **on)
nodes = gcp.compute.Subnetwork("nodes", network=vpc.id, region="us-central1", ip_cidr_range="10.0.0.0/20", **on)
cluster = gcp.container.Cluster("train", location="us-central1-a", network=vpc.id, subnetwork=nodes.id,
    initial_node_count=1, remove_default_node_pool=True, deletion_protection=False, **on)
pool = gcp.container.NodePool("gpus", cluster=cluster.name, location="us-central1-a", node_count=1,
    node_config={"machine_type": "n1-standard-4", "service_account": account.email, "guest_accelerators": [
        {"type": "nvidia-tesla-t4", "count": 2,
         "gpu_driver_installation_config": {"gpu_driver_version": "DEFAULT"}}]}, **on)
config = pulumi.Output.json_dumps({"apiVersion": "v1", "kind": "Config", "current-context": "c",
    "clusters": [{"name": "c", "cluster": {"server": pulumi.Output.concat("https://", cluster.endpoint),
        "certificate-authority-data": cluster.master_auth.cluster_ca_certificate}}],
    "users": [{"name": "c", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "gke-gcloud-auth-plugin", "interactiveMode": "Never"}}}],
    "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}]})
kubernetes = k8s.Provider("k", kubeconfig=config, opts=pulumi.ResourceOptions(depends_on=[pool]))
limits = {"nvidia.com/gpu": "4"}
k8s.batch.v1.Job("train", metadata={"annotations": {"pulumi.com/skipAwait": "true"}},
    spec={"template": {"spec": {"restart_policy": "Never", "containers": [
        {"name": "c", "image": "example.com/image:1", "resources": {"limits": limits}}]}}},
    opts=pulumi.ResourceOptions(provider=kubernetes))
"""


def test_pod_that_no_node_fits_fails_the_rehearsal(tmp_path: Path) -> None:
    # Use another name, because the other rehearsals of this file may run at the same time on another worker.
    name = f"{NAME}-too-much"
    runtime = {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}}
    (tmp_path / "Pulumi.yaml").write_text(json.dumps({"name": "too-much", "runtime": runtime}))
    (tmp_path / "__main__.py").write_text(POD_WITHOUT_NODE_PROGRAM)
    report: Report = Rehearsal(
        subject=Subject(stack="test", project=tmp_path, settings=None, jobs={}),
        folder=rehearsal_folder(name),
        cluster=cluster_settings(name, None),
        verbose=False,
    ).run()
    assert_nothing_is_left(name)
    assert not report.passed
    [problem] = report.problems
    assert "stays pending" in problem
    assert "Insufficient nvidia.com/gpu" in problem
    assert "Insufficient nvidia.com/gpu" in report.to_text()
