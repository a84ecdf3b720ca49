"""Capacity of a cloud platform's nodes for jobs, and the node selectors of their pods."""

from __future__ import annotations

from typing import Any

import pytest

from infra.hardware import PoolCapacity
from infra.hardware.tpus import tpu_slice
from infra.scheduling import Scheduling
from stack.config import StackConfig, parse
from stack.placement import pools_of_jobs, queue_capacity
from tests.problems import refused

T4 = {"accelerator": "nvidia-tesla-t4", "accelerators_per_host": 2, "hosts": 2}
V4 = {"accelerator": "v4-32", "kind": "jobset"}
TPUS = {
    "kind": "gke",
    "project": "some-project",
    "zone": "us-central2-b",
    "pools": [{"name": "v4", "accelerator": "v4-32", "slices": 2}],
}
P5: dict[str, Any] = {"kind": "eks", "pools": [{"name": "p5", "machine_type": "p5.48xlarge"}]}
H100 = {"accelerator": "nvidia-h100-80gb", "accelerators_per_host": 8, "hosts": 2}

C7 = [{"name": "cpus", "machine_type": "c7i.2xlarge", "nodes": 2}]
MX: dict[str, Any] = {
    "kind": "mx-job",
    "recipe": None,
    "image": "example.com/h:1",
    "script": "/opt/team/b.py",
    "resources": {"cpu": 2, "memory": "2Gi"},
}
MPI = {"kind": "mpi-job", "image": "example.com/mpi:1"}


def stack_values(platform: dict[str, Any], *jobs: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a stack with these jobs."""
    named = [{"name": f"job-{index}", "recipe": "digits", **job} for index, job in enumerate(jobs)]
    return {"platform": platform, "jobs": named}


def stack(platform: dict[str, Any], *jobs: dict[str, Any]) -> StackConfig:
    """Return a stack with these jobs."""
    return parse(stack_values(platform, *jobs))


FITTING: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "the walk-through's": ({"kind": "gke", "project": "some-project"}, [T4]),
    "one GPU of two": (
        {"kind": "gke", "project": "some-project"},
        [{**T4, "hosts": 4, "accelerators_per_host": 1, "resources": {"cpu": 1}}],
    ),
    "two slices": (TPUS, [{**V4, "slices": 2}]),
    "two jobs of a slice": (TPUS, [V4, V4]),
    "on EKS": (P5, [H100]),
    "a queue for queued nodes": (
        {
            "kind": "gke",
            "project": "some-project",
            "pools": [{"name": "a3", "machine_type": "a3-highgpu-8g", "capacity": "queued"}],
        },
        [{**H100, "queue": "a3"}],
    ),
    "queued nodes for a TrainJob": (
        {
            "kind": "gke",
            "project": "some-project",
            "pools": [{"name": "a3", "machine_type": "a3-highgpu-8g", "capacity": "queued"}],
        },
        [{**H100, "queue": "a3", "kind": "train-job"}],
    ),
    "two jobs of a queue in turn": ({"kind": "gke", "project": "some-project"}, [{**T4, "queue": "research"}] * 2),
    "two slices in turn in one": (
        {**TPUS, "pools": [{"name": "v4", "accelerator": "v4-32"}]},
        [{**V4, "queue": "research"}] * 2,
    ),
    "jobs that share nodes": (
        {"kind": "gke", "project": "some-project"},
        [{**T4, "hosts": 1, "accelerators_per_host": 1}] * 4,
    ),
    "a suspended job beside one that has all": (
        {"kind": "gke", "project": "some-project"},
        [T4, {**T4, "suspend": True}],
    ),
    "a job beside a suspended one that has all": (
        {"kind": "gke", "project": "some-project"},
        [{**T4, "suspend": True}, T4],
    ),
    "parameter servers": ({"kind": "eks", "pools": C7}, [{**MX, "parameter_servers": 2}]),
    "parameter servers of GPUs on the system's nodes": (
        {"kind": "gke", "project": "some-project"},
        [{**MX, **T4, "parameter_servers": 3}],
    ),
    "a launcher beside GPUs": ({"kind": "eks"}, [{**T4, **MPI}]),
    "on the system's nodes": ({"kind": "gke", "project": "some-project", "pools": []}, [{"resources": {"cpu": 2}}]),
}


@pytest.mark.parametrize("name", FITTING)
def test_fits(name: str) -> None:
    platform, jobs = FITTING[name]
    assert len(stack(platform, *jobs).jobs) == len(jobs)


UNSCHEDULABLE: dict[str, tuple[dict[str, Any], list[dict[str, Any]], tuple[str, str]]] = {
    "more hosts than nodes": (
        {"kind": "gke", "project": "some-project"},
        [{**T4, "hosts": 3}],
        ("capacity.job.pool_full", "jobs.0.hosts"),
    ),
    "no accelerator, and more than the system has": (
        {"kind": "gke", "project": "some-project"},
        [{"resources": {"cpu": 8, "memory": "16Gi"}}],
        ("capacity.job.host_too_large", "jobs.0.resources"),
    ),
    "no accelerator, and more hosts than the system has": (
        {"kind": "gke", "project": "some-project"},
        [{"hosts": 30}],
        ("capacity.job.pool_full", "jobs.0.hosts"),
    ),
    "four GPUs of two": (
        {"kind": "gke", "project": "some-project"},
        [{**T4, "accelerators_per_host": 4}],
        ("capacity.job.accelerators_too_many", "jobs.0.accelerators_per_host"),
    ),
    "another GPU": (
        {"kind": "gke", "project": "some-project"},
        [H100],
        ("capacity.job.accelerator_not_in_pools", "jobs.0.accelerator"),
    ),
    "more CPUs than a node": (
        {"kind": "gke", "project": "some-project"},
        [{**T4, "resources": {"cpu": 4}}],
        ("capacity.job.host_too_large", "jobs.0.resources"),
    ),
    "more slices than there are": (TPUS, [{**V4, "slices": 3}], ("capacity.job.pool_full", "jobs.0.slices")),
    "another topology": (
        TPUS,
        [{"accelerator": "v4-64"}],
        ("capacity.job.accelerator_not_in_pools", "jobs.0.accelerator"),
    ),
    "a whole node after two halves": (
        {"kind": "gke", "project": "some-project"},
        [{**T4, "hosts": 1, "accelerators_per_host": 1}] * 2 + [{**T4, "hosts": 1}],
        ("capacity.job.pool_full", "jobs.2.hosts"),
    ),
    "the second of two jobs": (
        {"kind": "gke", "project": "some-project"},
        [T4, T4],
        ("capacity.job.pool_full", "jobs.1.hosts"),
    ),
    "a job of a queue beside one without": (
        {"kind": "gke", "project": "some-project"},
        [{**T4, "queue": "research"}, {**T4, "hosts": 1}],
        ("capacity.job.pool_full", "jobs.0.hosts"),
    ),
    "a job of a queue that is larger than its pool": (
        {"kind": "gke", "project": "some-project"},
        [{**T4, "hosts": 3, "queue": "research"}],
        ("capacity.job.pool_full", "jobs.0.hosts"),
    ),
    "a suspended job that is too large": (
        {"kind": "gke", "project": "some-project"},
        [{**T4, "hosts": 3, "suspend": True}],
        ("capacity.job.pool_full", "jobs.0.hosts"),
    ),
    "too many parameter servers": (
        {"kind": "eks", "pools": C7},
        [{**MX, "parameter_servers": 1000}],
        ("capacity.job.no_room_beside", "jobs.0.parameter_servers"),
    ),
    "parameter servers beside GPUs, which no server may take": (
        {"kind": "gke", "project": "some-project"},
        [{**MX, **T4, "parameter_servers": 5, "resources": {"cpu": 3, "memory": "2Gi"}}],
        ("capacity.job.no_room_beside", "jobs.0.parameter_servers"),
    ),
    "parameter servers that are larger than the system's nodes": (
        {"kind": "eks"},
        [{**MX, **T4, "accelerators_per_host": 4, "resources": {"cpu": 16, "memory": "64Gi"}}],
        ("capacity.job.part_too_large", "jobs.0.resources"),
    ),
    "a launcher that its hosts leave no room": (
        {"kind": "eks", "pools": []},
        [{**MPI, "hosts": 2, "resources": {"cpu": "1500m", "memory": "1Gi"}}],
        ("capacity.job.no_room_beside", "jobs.0.kind"),
    ),
    "more elastic hosts than nodes": (
        {"kind": "gke", "project": "some-project"},
        [{**T4, "hosts": 3, "elastic": {"min_hosts": 1, "max_hosts": 3}}],
        ("capacity.job.pool_full", "jobs.0.elastic.max_hosts"),
    ),
    "more pods than the nodes have addresses for": (
        {"kind": "eks", "pools": C7},
        [{"hosts": 97, "shared_memory": "64Mi", "resources": {"cpu": "100m", "memory": "200Mi"}}],
        ("capacity.job.pool_full", "jobs.0.hosts"),
    ),
    "TPU on EKS": (P5, [{"accelerator": "v4-32"}], ("capacity.job.accelerator_not_in_pools", "jobs.0.accelerator")),
    "no queue for queued nodes": (
        {
            "kind": "gke",
            "project": "some-project",
            "pools": [{"name": "a3", "machine_type": "a3-highgpu-8g", "capacity": "queued"}],
        },
        [H100],
        ("capacity.job.queue_missing", "jobs.0.queue"),
    ),
    "CPU beyond the system's nodes": (
        {"kind": "gke", "project": "some-project", "pools": []},
        [{"resources": {"cpu": 16}}],
        ("capacity.job.host_too_large", "jobs.0.resources"),
    ),
}


@pytest.mark.parametrize("name", UNSCHEDULABLE)
def test_does_not_fit(name: str) -> None:
    platform, jobs, problem = UNSCHEDULABLE[name]
    assert refused(stack_values(platform, *jobs)) == [problem]


def test_a_job_on_cpu_says_nothing() -> None:
    assert stack({"kind": "gke", "project": "some-project"}).cloud.scheduling(None) == Scheduling()


def test_a_slice() -> None:
    found = stack(TPUS).cloud.scheduling("v4", tpu_slice("v4", "2x2x4"))
    assert found.node_selector == {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice",
        "cloud.google.com/gke-tpu-topology": "2x2x4",
    }
    assert found.tolerations == ({"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"},)
    assert found.accelerator_resource == "google.com/tpu"


def test_a_ladder_is_selected_by_its_class() -> None:
    pool = {"name": "h100", "machine_type": "a3-highgpu-8g", "capacity": ["reservation:r", "spot"]}
    found = stack({"kind": "gke", "project": "some-project", "pools": [pool]}).cloud.scheduling("nvidia-h100-80gb")
    assert found.node_selector["cloud.google.com/compute-class"] == "h100"
    assert {each["key"] for each in found.tolerations} == {
        "nvidia.com/gpu",
        "cloud.google.com/compute-class",
    }


def test_queued_nodes_are_tolerated() -> None:
    pool = {"name": "h100", "machine_type": "a3-highgpu-8g", "capacity": "queued"}
    found = stack({"kind": "gke", "project": "some-project", "pools": [pool]}).cloud.scheduling("nvidia-h100-80gb")
    assert "cloud.google.com/gke-queued" in {each["key"] for each in found.tolerations}


def test_adapters_of_a_node() -> None:
    assert stack(P5).cloud.scheduling("nvidia-h100-80gb").devices == {"vpc.amazonaws.com/efa": "32"}


def test_a_part_of_a_node_has_that_part_of_its_adapters() -> None:
    """Otherwise two jobs that share a node's GPUs would both request its only adapter."""
    quarter = stack(P5).cloud.scheduling("nvidia-h100-80gb", gpus_per_host=2)
    assert quarter.devices == {"vpc.amazonaws.com/efa": "8"}
    assert stack({"kind": "eks"}).cloud.scheduling("nvidia-tesla-t4", gpus_per_host=2).devices == {}


A100 = {"accelerator": "nvidia-a100-80gb"}
TWO_POOLS = {
    "kind": "gke",
    "project": "some-project",
    "pools": [{"name": "large", "machine_type": "a2-ultragpu-8g"}, {"name": "small", "machine_type": "a2-ultragpu-1g"}],
}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_small_job_leaves_large_nodes_to_those_that_need_them(order: tuple[int, int]) -> None:
    jobs: list[dict[str, Any]] = [{**A100, "accelerators_per_host": 8, "hosts": 2}, A100]
    ordered = stack(TWO_POOLS, *(jobs[index] for index in order))
    pools = list(pools_of_jobs(ordered.cloud, ordered.jobs).values())
    assert [pools[order.index(index)] for index in (0, 1)] == ["large", "small"]


def test_a_suspended_job_is_put_where_it_can_go_on() -> None:
    pools = [{"name": name, "machine_type": "a2-ultragpu-1g", "nodes": 1} for name in ("one", "two")]
    paused = stack({"kind": "gke", "project": "some-project", "pools": pools}, {**A100, "suspend": True}, A100)
    assert list(pools_of_jobs(paused.cloud, paused.jobs).values()) == ["two", "one"]


def test_jobs_of_a_queue_share_pools_before_they_wait() -> None:
    pools = [{"name": name, "machine_type": "a2-ultragpu-1g", "nodes": 1} for name in ("one", "two")]
    queued = stack({"kind": "gke", "project": "some-project", "pools": pools}, *[{**A100, "queue": "research"}] * 3)
    assert list(pools_of_jobs(queued.cloud, queued.jobs).values()) == ["one", "two", "one"]


def room_of(config: StackConfig, pool: str) -> PoolCapacity:
    """Return one pool's capacity for queued jobs."""
    return next(each for each in queue_capacity(config.cloud, config.jobs) if each.name == pool)


def test_a_queue_has_what_jobs_without_one_leave() -> None:
    everything = stack({"kind": "gke", "project": "some-project"}, {**T4, "queue": "research"})
    rest = stack(
        {"kind": "gke", "project": "some-project"}, {**T4, "hosts": 1, "queue": "research"}, {**T4, "hosts": 1}
    )
    assert [each.name for each in queue_capacity(everything.cloud, everything.jobs)] == ["system", "gpus"]
    whole, half = room_of(everything, "gpus"), room_of(rest, "gpus")
    assert (whole.devices, half.devices) == ({"nvidia.com/gpu": 4}, {"nvidia.com/gpu": 2})
    assert whole.free.millicores - half.free.millicores == rest.jobs[1].resources.capacity.millicores
    assert whole.free.memory - half.free.memory == rest.jobs[1].resources.capacity.memory
    assert (whole.node_labels, whole.taint) == ({"trainyard.dev/pool": "gpus"}, "nvidia.com/gpu")
    assert room_of(everything, "system").taint is None


def test_queued_nodes_come_on_request() -> None:
    pool = {"name": "h100", "machine_type": "a3-highgpu-8g", "capacity": "queued"}
    config = stack({"kind": "gke", "project": "some-project", "pools": [pool]}, {**H100, "queue": "a3"})
    assert room_of(config, "h100").on_request
    assert not room_of(config, "system").on_request


def test_a_queue_has_chips_and_adapters() -> None:
    tpus = room_of(stack(TPUS, {**V4, "queue": "research"}), "v4")
    assert (tpus.devices, tpus.taint) == ({"google.com/tpu": 32}, "google.com/tpu")
    p5 = room_of(stack({"kind": "eks", "pools": [{**P5["pools"][0], "nodes": 2}]}, {**H100, "queue": "a"}), "p5")
    assert p5.devices == {"nvidia.com/gpu": 16, "vpc.amazonaws.com/efa": 64}


def test_pods_say_which_pool_they_are_for() -> None:
    found = stack(TWO_POOLS).cloud.scheduling("nvidia-a100-80gb", pool="small")
    assert found.node_selector["trainyard.dev/pool"] == "small"
    assert stack(TWO_POOLS).cloud.scheduling(None, pool="system").node_selector == {"trainyard.dev/pool": "system"}


def test_a_cluster_of_the_users(tmp_path: Any) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("contexts: [{name: a}]", encoding="utf-8")
    cloud = stack({"kind": "kubeconfig", "context": "a", "kubeconfig": str(file), "image": "x"}).cloud
    assert cloud.scheduling("nvidia-l4").node_selector == {}
    assert cloud.scheduling("v6e-16", tpu_slice("v6e-16")).node_selector["cloud.google.com/gke-tpu-topology"] == "4x4"


@pytest.mark.parametrize("platform", [{"kind": "local"}, {"kind": "gke", "project": "some-project"}, {"kind": "eks"}])
def test_accelerators_that_are_nowhere(platform: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"only CPUs|no pool has"):
        stack(platform).cloud.scheduling("nvidia-b200")
