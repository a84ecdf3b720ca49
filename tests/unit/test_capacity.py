"""Capacity planning on clouds: jobs that fit, the pool of each job, the capacity of queues, and scheduling."""

from __future__ import annotations

from typing import Any

import pytest

from infra.hardware import Capacity, PodGroup, PoolCapacity, Scheduling
from infra.hardware.tpus import TpuSlice, tpu_slice
from settings.problems import ConfigError
from stack.config import StackConfig, parse
from stack.placement import advice, pools_of_jobs, queue_capacity
from tests.problems import problems_of
from tests.unit.stack_settings import CLUSTER, KUBECONFIG

GKE = {"kind": "gke", "project": "some-project"}
T4 = {"accelerator": "nvidia-tesla-t4", "accelerators_per_host": 2, "hosts": 2}
V4 = {"accelerator": "v4-32", "kind": "jobset"}
TPUS = {**GKE, "zone": "us-central2-b", "pools": [{"name": "v4", "accelerator": "v4-32", "slices": 2}]}
ONE_SLICE = {**TPUS, "pools": [{"name": "v4", "accelerator": "v4-32"}]}
EKS: dict[str, Any] = {"kind": "eks"}
P5: dict[str, Any] = {"kind": "eks", "pools": [{"name": "p5", "machine_type": "p5.48xlarge"}]}
H100 = {"accelerator": "nvidia-h100-80gb", "accelerators_per_host": 8, "hosts": 2}
QUEUED_PROVISIONING = {**GKE, "pools": [{"name": "a3", "machine_type": "a3-highgpu-8g", "capacity": "queued"}]}
C7 = [{"name": "cpus", "machine_type": "c7i.2xlarge", "nodes": 2}]
CPUS: dict[str, Any] = {**EKS, "pools": C7}
N2: dict[str, Any] = {**GKE, "pools": [{"name": "cpus", "machine_type": "n2-standard-32", "nodes": 1}]}
SMALL_HOSTS: dict[str, Any] = {"shared_memory": "64Mi", "resources": {"cpu": "500m", "memory": "512Mi"}}
MX: dict[str, Any] = {
    "kind": "mx-job",
    "recipe": None,
    "image": "example.com/h:1",
    "script": "/opt/team/b.py",
    "resources": {"cpu": 2, "memory": "2Gi"},
}
FOUR_T4S: dict[str, Any] = {**EKS, "pools": [{"name": "gpus", "machine_type": "g4dn.12xlarge", "nodes": 2}]}
T4_HOST: dict[str, Any] = {"accelerator": "nvidia-tesla-t4", "accelerators_per_host": 2, "resources": {"cpu": 4}}
MPI = {"kind": "mpi-job", "image": "example.com/mpi:1"}


def stack_values(platform: dict[str, Any], *jobs: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a stack with these jobs."""
    named = [{"name": f"job-{index}", "recipe": "digits", **job} for index, job in enumerate(jobs)]
    return {"platform": platform, "jobs": named}


def stack(platform: dict[str, Any], *jobs: dict[str, Any]) -> StackConfig:
    """Return the parsed stack with these jobs."""
    return parse(stack_values(platform, *jobs))


SCHEDULABLE: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
    (GKE, [T4]),
    (GKE, [{**T4, "hosts": 4, "accelerators_per_host": 1, "resources": {"cpu": 1}}]),
    (TPUS, [{**V4, "slices": 2}]),
    (TPUS, [V4, {**V4, "kind": "train-job"}]),
    (ONE_SLICE, [{**V4, "kind": "indexed-job"}]),
    (QUEUED_PROVISIONING, [{**H100, "queue": "a3"}]),
    (GKE, [{**T4, "queue": "research"}] * 2),
    (GKE, [{**T4, "hosts": 1, "accelerators_per_host": 1}] * 4),
    (GKE, [T4, {**T4, "suspend": True}]),
    (CPUS, [{**MX, "parameter_servers": 2}]),
    (GKE, [{**MX, **T4, "parameter_servers": 3}]),
    (EKS, [{**T4, **MPI}]),
    ({**GKE, "pools": []}, [{"resources": {"cpu": 2}}]),
    (N2, [{**SMALL_HOSTS, "hosts": 22}]),
]


@pytest.mark.parametrize(("platform", "jobs"), SCHEDULABLE, ids=str)
def test_jobs_within_capacity_are_accepted(platform: dict[str, Any], jobs: list[dict[str, Any]]) -> None:
    assert len(stack(platform, *jobs).jobs) == len(jobs)


UNSCHEDULABLE: list[tuple[dict[str, Any], list[dict[str, Any]], str, str]] = [
    (GKE, [{**T4, "hosts": 3}], "pool_full", "0.hosts"),
    (GKE, [{"hosts": 30}], "pool_full", "0.hosts"),
    (GKE, [{**T4, "accelerators_per_host": 4}], "accelerators_too_many", "0.accelerators_per_host"),
    (GKE, [H100], "accelerator_not_in_pools", "0.accelerator"),
    (GKE, [{**T4, "resources": {"cpu": 4}}], "host_too_large", "0.resources"),
    (TPUS, [{**V4, "slices": 3}], "pool_full", "0.slices"),
    (GKE, [{**T4, "hosts": 1, "accelerators_per_host": 1}] * 2 + [{**T4, "hosts": 1}], "pool_full", "2.hosts"),
    (GKE, [{**T4, "queue": "research"}, {**T4, "hosts": 1}], "pool_full", "0.hosts"),
    (GKE, [{**T4, "hosts": 3, "queue": "research"}], "pool_full", "0.hosts"),
    (CPUS, [{**MX, "parameter_servers": 1000}], "no_capacity_left", "0.parameter_servers"),
    (
        GKE,
        [{**MX, **T4, "parameter_servers": 5, "resources": {"cpu": 3, "memory": "2Gi"}}],
        "no_capacity_left",
        "0.parameter_servers",
    ),
    (
        EKS,
        [{**MX, **T4, "accelerators_per_host": 4, "resources": {"cpu": 16, "memory": "64Gi"}}],
        "part_too_large",
        "0.resources",
    ),
    (
        {**EKS, "pools": []},
        [{**MPI, "hosts": 2, "resources": {"cpu": "1500m", "memory": "1Gi"}}],
        "no_capacity_left",
        "0.kind",
    ),
    (GKE, [{**T4, "hosts": 3, "elastic": {"min_hosts": 1, "max_hosts": 3}}], "pool_full", "0.elastic.max_hosts"),
    (
        CPUS,
        [{"hosts": 97, "shared_memory": "64Mi", "resources": {"cpu": "100m", "memory": "200Mi"}}],
        "pool_full",
        "0.hosts",
    ),
    (N2, [{**SMALL_HOSTS, "hosts": 23}], "pool_full", "0.hosts"),
    # The first job fills one node. The pods have `maxSkew: 1`, so the other node can run only one host.
    (FOUR_T4S, [{**T4_HOST, "accelerators_per_host": 4}, {**T4_HOST, "hosts": 2}], "pool_full", "1.hosts"),
    (QUEUED_PROVISIONING, [H100], "queue_missing", "0.queue"),
    ({**GKE, "pools": []}, [{"resources": {"cpu": 16}}], "host_too_large", "0.resources"),
]


@pytest.mark.parametrize(("platform", "jobs", "code", "path"), UNSCHEDULABLE)
def test_jobs_beyond_capacity_are_rejected_with_code_and_path(
    platform: dict[str, Any], jobs: list[dict[str, Any]], code: str, path: str
) -> None:
    assert problems_of(stack_values(platform, *jobs)) == [(f"capacity.job.{code}", f"jobs.{path}")]


def test_job_that_kubernetes_may_divide_among_slices_is_rejected() -> None:
    values = stack_values(TPUS, {**V4, "kind": "indexed-job"})
    assert problems_of(values) == [("job.kind.divides_slices", "jobs.0.kind")]


def host(accelerator: str | None = None, accelerators: int = 1, *, tpu: TpuSlice | None = None) -> PodGroup:
    """Return a pod group with one host of a job."""
    capacity = Capacity(millicores=1000, memory=2**30)
    return PodGroup(count=1, per_pod=capacity, accelerator=accelerator, accelerators=accelerators, tpu=tpu)


def test_scheduling_without_accelerator_is_empty() -> None:
    assert stack(GKE).cloud.scheduling(host()) == Scheduling()


def test_scheduling_of_tpu_slice_tolerates_the_taint_of_its_nodes() -> None:
    found = stack(TPUS).cloud.scheduling(host("v4", tpu=tpu_slice("v4", "2x2x4")))
    assert found.node_selector == {}
    assert found.tolerations == ({"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"},)
    assert found.accelerator_resource == "google.com/tpu"


@pytest.mark.parametrize(
    ("capacity", "taint", "selected_class"),
    [
        (["reservation:r", "spot"], "cloud.google.com/compute-class", "h100"),
        ("queued", "cloud.google.com/gke-queued", None),
    ],
    ids=["fallback order", "queued"],
)
def test_scheduling_tolerates_taints_of_compute_class_and_queued_provisioning(
    capacity: object, taint: str, selected_class: str | None
) -> None:
    pool = {"name": "h100", "machine_type": "a3-highgpu-8g", "capacity": capacity}
    found = stack({**GKE, "pools": [pool]}).cloud.scheduling(host("nvidia-h100-80gb"))
    assert found.node_selector.get(taint) == selected_class
    assert {each["key"] for each in found.tolerations} == {"nvidia.com/gpu", taint}


def test_scheduling_of_a_cpu_job_tolerates_the_taint_of_its_compute_class() -> None:
    pool = {"name": "cpus", "machine_type": "n2-standard-8", "capacity": ["spot", "on-demand"]}
    cloud = stack({**GKE, "pools": [pool]}).cloud
    found = cloud.scheduling(host(), "cpus")
    assert found.node_selector["cloud.google.com/compute-class"] == "cpus"
    assert [each["key"] for each in found.tolerations] == ["cloud.google.com/compute-class"]
    assert [each.accepts_any_pod for each in cloud.pool_nodes()] == [False, True]
    assert not cloud.scheduling(host()).tolerations


def test_scheduling_on_efa_nodes_requests_adapters_in_proportion_to_gpus() -> None:
    # If each job requested all adapters, two jobs could not share a node's GPUs.
    for gpus, adapters in ((8, "32"), (2, "8")):
        assert stack(P5).cloud.scheduling(host("nvidia-h100-80gb", gpus)).devices == {"vpc.amazonaws.com/efa": adapters}
    assert stack({"kind": "eks"}).cloud.scheduling(host("nvidia-tesla-t4", 2)).devices == {}


A100 = {"accelerator": "nvidia-a100-80gb"}
TWO_POOLS = {
    **GKE,
    "pools": [{"name": "large", "machine_type": "a2-ultragpu-8g"}, {"name": "small", "machine_type": "a2-ultragpu-1g"}],
}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_pools_of_jobs_gives_a_job_with_one_gpu_the_smallest_nodes(order: tuple[int, int]) -> None:
    eight_gpus: dict[str, Any] = {**A100, "name": "eight-gpus", "accelerators_per_host": 8, "hosts": 2}
    one_gpu: dict[str, Any] = {**A100, "name": "one-gpu"}
    config = stack(TWO_POOLS, *((eight_gpus, one_gpu)[index] for index in order))
    assert pools_of_jobs(config.cloud, config.jobs) == {"eight-gpus": "large", "one-gpu": "small"}


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [([{**A100, "suspend": True}, A100], ["two", "one"]), ([{**A100, "queue": "research"}] * 3, ["one", "two", "one"])],
    ids=["suspended", "queued"],
)
def test_pools_of_suspended_or_queued_jobs_spread_over_equal_pools(
    jobs: list[dict[str, Any]], expected: list[str]
) -> None:
    pools = [{"name": name, "machine_type": "a2-ultragpu-1g", "nodes": 1} for name in ("one", "two")]
    config = stack({**GKE, "pools": pools}, *jobs)
    assert list(pools_of_jobs(config.cloud, config.jobs).values()) == expected


def pool_capacity(config: StackConfig, pool: str) -> PoolCapacity:
    """Return one pool's capacity for queued jobs."""
    return next(each for each in queue_capacity(config.cloud, config.jobs) if each.name == pool)


def test_queue_capacity_excludes_requests_of_jobs_without_a_queue() -> None:
    all_queued = stack(GKE, {**T4, "queue": "research"})
    half_queued = stack(GKE, {**T4, "hosts": 1, "queue": "research"}, {**T4, "hosts": 1})
    assert [each.name for each in queue_capacity(all_queued.cloud, all_queued.jobs)] == ["system", "gpus"]
    whole, half = pool_capacity(all_queued, "gpus"), pool_capacity(half_queued, "gpus")
    assert (whole.devices, half.devices) == ({"nvidia.com/gpu": 4}, {"nvidia.com/gpu": 2})
    assert whole.free.millicores - half.free.millicores == half_queued.jobs[1].resources.capacity.millicores
    assert whole.free.memory - half.free.memory == half_queued.jobs[1].resources.capacity.memory
    assert (whole.node_labels, whole.taint) == ({"trainyard.dev/pool": "gpus"}, "nvidia.com/gpu")
    assert pool_capacity(all_queued, "system").taint is None


def test_queue_capacity_of_queued_pool_is_on_request() -> None:
    pool = {"name": "h100", "machine_type": "a3-highgpu-8g", "capacity": "queued"}
    config = stack({**GKE, "pools": [pool]}, {**H100, "queue": "a3"})
    assert pool_capacity(config, "h100").on_request
    assert not pool_capacity(config, "system").on_request


def test_queue_capacity_counts_chips_and_adapters() -> None:
    tpus = pool_capacity(stack(TPUS, {**V4, "queue": "research"}), "v4")
    assert (tpus.devices, tpus.taint) == ({"google.com/tpu": 32}, "google.com/tpu")
    p5 = pool_capacity(stack({"kind": "eks", "pools": [{**P5["pools"][0], "nodes": 2}]}, {**H100, "queue": "a"}), "p5")
    assert p5.devices == {"nvidia.com/gpu": 16, "vpc.amazonaws.com/efa": 64}


def test_scheduling_with_pool_selects_that_pool() -> None:
    found = stack(TWO_POOLS).cloud.scheduling(host("nvidia-a100-80gb"), "small")
    assert found.node_selector["trainyard.dev/pool"] == "small"
    assert stack(TWO_POOLS).cloud.scheduling(host(), "system").node_selector == {"trainyard.dev/pool": "system"}


def test_scheduling_on_existing_cluster_selects_no_nodes() -> None:
    cloud = stack({**CLUSTER, "kubeconfig": str(KUBECONFIG)}).cloud
    for group in (host("nvidia-l4"), host("v6e-16", tpu=tpu_slice("v6e-16"))):
        assert cloud.scheduling(group).node_selector == {}


@pytest.mark.parametrize("platform", [{"kind": "local"}, GKE, {"kind": "eks"}])
def test_scheduling_of_missing_accelerator_raises(platform: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"only CPUs|no pool has"):
        stack(platform).cloud.scheduling(host("nvidia-b200"))


@pytest.mark.parametrize(
    ("count", "subject"),
    [(1, "its parameter server of 16 CPU and 64Gi does"), (2, "parameter servers of 16 CPU and 64Gi each do")],
)
def test_error_for_pods_larger_than_a_node_counts_the_pods(count: int, subject: str) -> None:
    job = {**MX, **T4, "accelerators_per_host": 4, "resources": {"cpu": 16, "memory": "64Gi"}}
    with pytest.raises(ConfigError, match=f": {subject} not fit on a node without accelerators;"):
        stack(EKS, {**job, "parameter_servers": count})


def test_parameter_servers_suggested_by_error_are_accepted() -> None:
    platform = {"kind": "eks", "pools": C7}
    with pytest.raises(ConfigError, match="write 2 or less"):
        stack(platform, {**MX, "parameter_servers": 3})
    assert stack(platform, {**MX, "parameter_servers": 2}).jobs[0].parameter_servers == 2
    more = {"kind": "eks", "pools": [{**C7[0], "nodes": 3}]}
    assert stack(more, {**MX, "parameter_servers": 3}).jobs[0].parameter_servers == 3


ZONED_POOL = {"name": "gpus", "nodes": 2, "efa": False, "zones": ["us-west-2a", "us-west-2b"]}
ZONED = {"kind": "eks", "zones": ["us-west-2a", "us-west-2b"], "pools": [ZONED_POOL]}
IDLE_ADVICE = "nodes of these pools stay and cost money when no job runs: gpus (2); set `ttl_hours`"


@pytest.mark.parametrize(
    ("platform", "job", "ttl_hours", "expected"),
    [
        (ZONED, T4, 12, ["the 2 hosts of job one can be in zones us-west-2a and us-west-2b"]),
        (ZONED, {**T4, "hosts": 1}, 12, []),
        ({**ZONED, "pools": [{"name": "gpus", "nodes": 2, "zones": ["us-west-2a"]}]}, T4, 12, []),
        ({**ZONED, "pools": [{"name": "gpus", "nodes": 2, "zones": ["us-west-2a"]}]}, T4, None, [IDLE_ADVICE]),
        ({**GKE, "pools": [{"name": "gpus", "min_nodes": 0}]}, T4, None, []),
        ({**GKE, "pools": [{"name": "gpus", "max_run_hours": 5}]}, T4, None, []),
        ({**GKE, "pools": [{"name": "gpus"}]}, T4, None, [IDLE_ADVICE]),
    ],
    ids=str,
)
def test_advice_names_the_zones_of_a_job_in_several_zones_and_idle_pools(
    platform: dict[str, Any], job: dict[str, Any], ttl_hours: float | None, expected: list[str]
) -> None:
    config = stack(platform, {**job, "name": "one"})
    found = advice(config.cloud, config.jobs, ttl_hours)
    assert len(found) == len(expected)
    assert all(each.startswith(start) for each, start in zip(found, expected, strict=True))
