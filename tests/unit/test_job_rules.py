"""Problems and accepted settings of jobs: names, folders, flags and reserved variables."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from settings.kubernetes_values import LABEL_LIMIT, check_label
from stack.config import parse
from tests.golden.manifests import ON_GPUS, ON_TPUS, manifests
from tests.problems import problems_of
from tests.unit.stack_settings import JOB, PLATFORM, code_ids, error_lines, job, job_on_cluster
from workloads.kinds import KINDS
from workloads.spec import JobKind, JobSpec
from workloads.validation.conflicts import conflicts

IMAGENET = {"recipe": "imagenet"}
IMAGE_FILES = {"fake_data": False, "data_dir": "/bucket/data"}
SCRIPT_JOB: dict[str, Any] = {"recipe": None, "script": "a.py"}
NETWORK_CHECK: dict[str, Any] = {"recipe": None, "script": "./images/trainer/network_check.py"}
MX_JOB: dict[str, Any] = {**SCRIPT_JOB, "kind": "mx-job"}
WITHOUT_TORCHRUN: dict[str, Any] = {**SCRIPT_JOB, "torchrun": False}
L4: dict[str, Any] = {"accelerator": "nvidia-l4"}
FOUR_L4: dict[str, Any] = {**L4, "accelerators_per_host": 4}
V4: dict[str, Any] = {"accelerator": "v4-32"}
MODEL_SHARDING = {"sharding": "model"}
ELASTIC_ONE_HOST = {"min_hosts": 1, "max_hosts": 1}
ELASTIC_TWO_HOSTS = {"min_hosts": 1, "max_hosts": 2}
RAY_JOB: dict[str, Any] = {
    "kind": "ray-job",
    "recipe": None,
    "script": "/opt/team/train.py",
    "image": "example.com/ray:1",
    "shared_memory": "256Mi",
    "resources": {"cpu": "500m", "memory": "1Gi"},
}


def two_jobs(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with two copies of JOB and changes to each. The first has the name `a` by default."""
    return {"platform": PLATFORM, "jobs": [{**JOB, "name": "a", **first}, {**JOB, **second}]}


JOB_PROBLEMS: list[tuple[dict[str, Any], str, str]] = [
    (job(runtime="xla", rendezvous="c10d"), "job.rendezvous.without_torchrun", "0.rendezvous"),
    (job(script="a.py"), "job.script.with_recipe", "0.script"),
    (job(args=["a"]), "job.args.without_script", "0.args"),
    (job(**SCRIPT_JOB, flags={"a": 1}), "job.flags.without_recipe", "0.flags"),
    (job(kind="mx-job"), "job.recipe.needs_torch", "0.recipe"),
    (job(**RAY_JOB | {"script": None, "recipe": "digits"}), "job.recipe.needs_torch", "0.recipe"),
    (job_on_cluster(**RAY_JOB, **V4), "job.kind.not_on_tpus", "0.kind"),
    (job(**RAY_JOB, elastic=ELASTIC_TWO_HOSTS), "job.elastic.kind", "0.elastic"),
    (job(**RAY_JOB, rendezvous="static"), "job.rendezvous.kind_without_torchrun", "0.rendezvous"),
    (job(**RAY_JOB | {"shared_memory": "100Mi"}), "job.shared_memory.too_small_for_ray_job", "0.shared_memory"),
    (
        job(**RAY_JOB | {"resources": {"cpu": "100m", "memory": "1Gi"}}),
        "job.resources.cpu_too_small_for_ray_job",
        "0.resources.cpu",
    ),
    (
        job(**RAY_JOB | {"resources": {"cpu": 1, "memory": "255Mi"}, "shared_memory": "200Mi"}),
        "job.resources.memory_too_small_for_ray_job",
        "0.resources.memory",
    ),
    (job(**RAY_JOB, name="a" * 48), "job.name.too_long", "0.name"),
    (job(**L4), "job.accelerator.local", "0.accelerator"),
    (job_on_cluster(**V4, kind="mpi-job"), "job.kind.not_on_tpus", "0.kind"),
    (job_on_cluster(**V4, slices=2), "job.slices.kind", "0.slices"),
    (job_on_cluster(accelerator="v5litepod-8", slices=2, kind="jobset"), "job.slices.one_host", "0.slices"),
    (job(**MX_JOB, processes_per_host=2), "job.processes_per_host.several_in_mx_job", "0.processes_per_host"),
    (
        job_on_cluster(**L4, environment={"CUDA_VISIBLE_DEVICES": "0"}),
        "job.environment.hides_gpus",
        "0.environment.CUDA_VISIBLE_DEVICES",
    ),
    (
        job_on_cluster(**L4, secrets={"NVIDIA_VISIBLE_DEVICES": "gpus"}),
        "job.environment.hides_gpus",
        "0.secrets.NVIDIA_VISIBLE_DEVICES",
    ),
    (job_on_cluster(**L4, flags={"device": "cpu"}), "job.device.not_cpu", "0.flags.device"),
    (job(shared_memory="900Mi"), "job.shared_memory.too_large", "0.shared_memory"),
    (job(flags={"wandb": "online"}), "job.wandb.no_key", "0.flags.wandb"),
    (job(environment={"A": "a\0"}), "job.text.control_character", "0.environment.A"),
    (job(recipe=None, script="./a.py", args=["a", "\x1b[0m"]), "job.text.control_character", "0.args.1"),
    (job_on_cluster(**V4, accelerators_per_host=2), "job.accelerators_per_host.without_gpu", "0.accelerators_per_host"),
    (
        job_on_cluster(**V4, processes_per_host=4, slices=2, kind="jobset"),
        "job.processes_per_host.several_on_slices",
        "0.processes_per_host",
    ),
    (job_on_cluster(**V4, runtime="torch"), "job.runtime.torch_on_tpu", "0.runtime"),
    (job(runtime="xla", **MX_JOB), "job.runtime.without_pytorch", "0.runtime"),
    (job(elastic=ELASTIC_ONE_HOST, kind="jobset"), "job.elastic.kind", "0.elastic"),
    (job_on_cluster(accelerator="v4-8", elastic=ELASTIC_ONE_HOST), "job.elastic.tpu", "0.elastic"),
    (job(parameter_servers=2), "job.parameter_servers.kind", "0.parameter_servers"),
    (
        job(**SCRIPT_JOB, image="example.com/a:1", min_bandwidth_gbps=1),
        "job.min_bandwidth_gbps.with_user_image",
        "0.min_bandwidth_gbps",
    ),
    (job(kind="train-job", rendezvous="c10d"), "job.rendezvous.kind", "0.rendezvous"),
    (job(kind="pytorch-job", rendezvous="c10d"), "job.rendezvous.c10d_without_elastic", "0.rendezvous"),
    (job(**MX_JOB, rendezvous="c10d"), "job.rendezvous.kind_without_torchrun", "0.rendezvous"),
    (job_on_cluster(**V4, rendezvous="c10d"), "job.rendezvous.unused_on_tpu_hosts", "0.rendezvous"),
    (job(environment={"WANDB_API_KEY": "abc"}), "job.environment.secret", "0.environment.WANDB_API_KEY"),
    (job(secrets={"WANDB_API_KEY": "wandb"}), "job.secrets.unknown", "0.secrets.WANDB_API_KEY"),
    (job(secrets={"A": "wandb"}, environment={"A": "1"}), "job.environment.also_secret", "0.environment.A"),
    (job(**MX_JOB, queue="research"), "job.queue.kind", "0.queue"),
    (job(**NETWORK_CHECK, args=["--run=$(RUN)"], environment={"RUN": "a"}), "job.text.reference", "0.args.0"),
    (job(environment={"RUN": "a", "FOLDER": "/tmp/$(RUN)"}), "job.text.reference", "0.environment.FOLDER"),
    (job(torchrun=False), "job.torchrun.with_recipe", "0.torchrun"),
    (job(kind="mpi-job", **WITHOUT_TORCHRUN), "job.torchrun.without_effect", "0.torchrun"),
    (job(**WITHOUT_TORCHRUN, elastic=ELASTIC_ONE_HOST), "job.torchrun.needed", "0.torchrun"),
    (job(**WITHOUT_TORCHRUN, min_bandwidth_gbps=1), "job.min_bandwidth_gbps.without_torchrun", "0.min_bandwidth_gbps"),
    (job(queue="a", suspend=True), "job.suspend.in_queue", "0.suspend"),
    (job_on_cluster(accelerator="v9-32"), "settings.accelerator", "0.accelerator"),
    (job_on_cluster(accelerator="v4", topology="3x3x3"), "settings.topology_impossible", "0.topology"),
    (job_on_cluster(topology="2x2"), "settings.topology_without_tpu", "0.topology"),
    (job_on_cluster(**L4, slices=2, kind="jobset"), "job.slices.without_tpu", "0.slices"),
    (job_on_cluster(accelerator="v4-33"), "settings.tpu_partial_chip", "0.accelerator"),
    (job_on_cluster(**FOUR_L4, processes_per_host=1), "job.processes_per_host.idle_gpus", "0.processes_per_host"),
    (job(resources={"cpu": 1, "memory": "10Mi"}), "job.resources.memory_too_small", "0.resources.memory"),
    (
        job(resources={"cpu": 1, "memory": "799Mi"}, processes_per_host=4),
        "job.resources.memory_too_small",
        "0.resources.memory",
    ),
    (job(priority_class="High"), "settings.priority_class", "0.priority_class"),
    (job_on_cluster(**V4, processes_per_host=2), "job.processes_per_host.wrong_for_tpu_host", "0.processes_per_host"),
    (job_on_cluster(**L4, runtime="xla"), "job.runtime.xla_on_gpu", "0.runtime"),
    (job_on_cluster(**L4, runtime="xla", image="xla"), "job.runtime.xla_on_gpu", "0.runtime"),
    (job_on_cluster(**V4, hosts=2), "job.hosts.differ_from_slice", "0.hosts"),
    (job(elastic={"min_hosts": 3, "max_hosts": 1}), "job.elastic.range", "0.elastic.min_hosts"),
    (job(elastic=ELASTIC_TWO_HOSTS, hosts=1), "job.hosts.differ_from_elastic", "0.hosts"),
    (job(elastic=ELASTIC_ONE_HOST, rendezvous="static"), "job.rendezvous.static_elastic", "0.rendezvous"),
    (job(name="a" * 59, elastic=ELASTIC_ONE_HOST, rendezvous="etcd"), "job.name.too_long", "0.name"),
    (job(**WITHOUT_TORCHRUN, processes_per_host=2), "job.torchrun.several_processes", "0.torchrun"),
    (job_on_cluster(accelerator="v4"), "settings.topology_missing", "0.topology"),
    (
        job(secrets={"WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567"}),
        "settings.secret_name",
        "0.secrets.WANDB_API_KEY",
    ),
    (job(name="profiles"), "job.folder.shared_by_all_jobs", "0.name"),
    (job(flags={"job": "checkpoints"}), "job.folder.shared_by_all_jobs", "0.flags.job"),
    (job(**IMAGENET, flags={"data_dir": "s3://team/imagenet"}), "job.flags.only_for_image_files", "0.flags.data_dir"),
    (
        job(**IMAGENET, image="cuda12", flags={"data_dir": "s3://t/i"}),
        "job.flags.only_for_image_files",
        "0.flags.data_dir",
    ),
    (
        job(**IMAGENET, flags={**IMAGE_FILES, "test_steps": 4}),
        "job.flags.only_for_synthetic_images",
        "0.flags.test_steps",
    ),
    (
        job(**IMAGENET, flags={**IMAGE_FILES, "stream": True, "cache_dir": "/tmp/c"}),
        "job.cache_dir.with_stream",
        "0.flags.cache_dir",
    ),
    (job(flags=MODEL_SHARDING), "job.sharding.without_xla", "0.flags.sharding"),
    (
        job_on_cluster(**V4, processes_per_host=4, flags=MODEL_SHARDING),
        "job.sharding.several_processes",
        "0.flags.sharding",
    ),
    (job(flags={"profile_port": 9012}), "job.profile_port.without_xla", "0.flags.profile_port"),
    (job(flags={"profile-steps": "3-5", "bucket": ""}), "job.flags.no_bucket", "0.flags.profile-steps"),
    (job(flags={"wandb": "offline", "bucket": ""}), "job.flags.no_bucket", "0.flags.wandb"),
    (job(min_bandwidth_gbps=1), "job.min_bandwidth_gbps.one_host_or_interactive", "0.min_bandwidth_gbps"),
    (
        job(hosts=2, min_bandwidth_gbps=1, interactive=True),
        "job.min_bandwidth_gbps.one_host_or_interactive",
        "0.min_bandwidth_gbps",
    ),
    (two_jobs({"rendezvous": "etcd"}, {"name": "a-etcd"}), "job.name.shared", "1.name"),
    (two_jobs({"kind": "jobset"}, {"name": "a-worker-0"}), "job.name.shared", "1.name"),
    (two_jobs({"kind": "train-job"}, {"name": "a-node-0"}), "job.name.shared", "1.name"),
    (two_jobs({"kind": "pytorch-job"}, {"name": "a-master-0"}), "job.name.shared", "1.name"),
    (two_jobs({}, {"name": "b", "flags": {"job": "a"}}), "job.folder.shared", "1.flags.job"),
    (two_jobs({"flags": {"job": "b"}}, {"name": "b"}), "job.folder.shared", "1.name"),
    (two_jobs({"flags": {"job": "b"}}, {"name": "b", **SCRIPT_JOB, "script": "./a.py"}), "job.folder.shared", "1.name"),
    (job(flags={"decay": 0.1}), "job.decay.without_stable_schedule", "0.flags.decay"),
    (job(flags={"decay": 0.1, "schedule": "cosine"}), "job.decay.without_stable_schedule", "0.flags.decay"),
    (job(flags={"schedule": "stable", "warmup": 0.5, "decay": 0.6}), "job.decay.longer_than_run", "0.flags.decay"),
    (job(flags={"schedule": "stable", "warmup": 0.9}), "job.warmup.longer_than_run", "0.flags.warmup"),
    (job(flags={"schedule": "stable", "decay": 0.9}), "job.decay.longer_than_run", "0.flags.decay"),
    (job(flags={"accumulate": 65}), "job.accumulate.above_batch_size", "0.flags.accumulate"),
    (job(kind="pytorch-job", elastic=ELASTIC_TWO_HOSTS, rendezvous="etcd"), "job.rendezvous.kind", "0.rendezvous"),
    (job(elastic=ELASTIC_TWO_HOSTS, restarts=0), "job.restarts.zero_for_elastic", "0.restarts"),
]
"""Configuration, and the code and path of its problem. The path starts below `jobs`."""


@pytest.mark.parametrize(
    ("name", "intended"),
    {
        "v100": "nvidia-tesla-v100",
        "V5P-32": "v5p-32",
        "v5e-16": "v5litepod-16",
        "NVIDIA_A100": "nvidia-tesla-a100 or nvidia-a100-80gb",
    }.items(),
)
def test_unknown_accelerator_suggests_intended_name(name: str, intended: str) -> None:
    values = job_on_cluster(accelerator=name)
    assert problems_of(values) == [("settings.accelerator", "jobs.0.accelerator")]
    assert f"; write {intended}; allowed: " in error_lines(values)[0]


@pytest.mark.parametrize(("values", "code", "path"), JOB_PROBLEMS, ids=code_ids(JOB_PROBLEMS))
def test_invalid_job_setting_has_code_and_path(values: dict[str, Any], code: str, path: str) -> None:
    assert problems_of(values) == [(code, f"jobs.{path}")]


@pytest.mark.parametrize(
    "values",
    [
        job_on_cluster(**FOUR_L4),
        job_on_cluster(**FOUR_L4, recipe=None, script="/a.py", processes_per_host=1, image="example.com/a:1"),
        job_on_cluster(**FOUR_L4, recipe=None, script="/a.py", torchrun=False, image="e/a:1"),
        job(environment={"CUDA_VISIBLE_DEVICES": ""}),
        job(**NETWORK_CHECK, args=["$(OTHER)", "$RUN"], environment={"RUN": "$(pwd)"}),
        job(resources={"cpu": "1m", "memory": "200Mi"}),
        job(**NETWORK_CHECK, resources={"cpu": "1m", "memory": "10Mi"}),
        job(priority_class="gpu.high-prio"),
        job(flags={"wandb": "auto"}),
        two_jobs({}, {"name": "a-etcd"}),
        two_jobs({"kind": "jobset"}, {"name": "a-worker-1"}),
        two_jobs({}, {"name": "b", "flags": {"job": "c"}}),
        two_jobs({"flags": {"bucket": "s3://one"}}, {"name": "b", "flags": {"job": "a", "bucket": "s3://two"}}),
        job(**IMAGENET, flags={**IMAGE_FILES, "stream": True}),
        job(**IMAGENET, flags={"fake_data": True, "steps_per_epoch": 3, "stream": False, "cache_dir": ""}),
        job(runtime="xla", flags={"sharding": "model", "profile_port": 9012}),
        job(flags={"wandb": "auto", "profile_steps": "", "bucket": ""}),
        job(flags={"accumulate": 64}),
        job(flags={"schedule": "stable", "warmup": "0.5", "decay": 0.5}),
        job(flags={"schedule": "cosine", "warmup": 0.9}),
    ],
    ids=str,
)
def test_job_without_conflict_is_accepted(values: dict[str, Any]) -> None:
    assert parse(values).jobs


def test_job_with_wandb_online_and_its_key_is_accepted() -> None:
    values = job(flags={"wandb": "online"}, secrets={"WANDB_API_KEY": "wandb"})
    assert parse(values, {"wandb": True}).jobs


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("RANK", job()),
        ("MASTER_ADDR", job()),
        ("TPU_WORKER_ID", job_on_cluster(accelerator="v4-32")),
        ("PJRT_DEVICE", job(runtime="xla")),
        ("JOB_COMPLETION_INDEX", job()),
        ("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", job(elastic={"min_hosts": 1, "max_hosts": 2})),
        ("MASTER_ADDR", job(kind="pytorch-job", torchrun=False, **SCRIPT_JOB)),
        ("DMLC_ROLE", job(kind="mx-job", **SCRIPT_JOB)),
        ("OMPI_MCA_plm_rsh_args", job(kind="mpi-job")),
        ("OMPI_MCA_btl", job(kind="mpi-job")),
        ("OMPI_COMM_WORLD_RANK", job(kind="mpi-job")),
        ("RAY_ADDRESS", job(**RAY_JOB)),
        ("RAY_CLUSTER_NAME", job(**RAY_JOB)),
    ],
)
def test_reserved_variable_is_rejected(name: str, values: dict[str, Any]) -> None:
    (spec,) = values["jobs"]
    for key in ("environment", "secrets"):
        invalid = {**values, "jobs": [{**spec, key: {name: "canary"}}]}
        assert problems_of(invalid) == [("job.environment.reserved", f"jobs.0.{key}.{name}")]


@pytest.mark.parametrize("name", ["HOME", "OMP_NUM_THREADS"])
def test_variable_that_pods_set_is_rejected_in_secrets_but_accepted_in_environment(name: str) -> None:
    assert problems_of(job(secrets={name: "wandb"})) == [("job.secrets.set_in_pods", f"jobs.0.secrets.{name}")]
    assert parse(job(environment={name: "1"})).jobs[0].environment == {name: "1"}


@pytest.mark.parametrize("image", [None, "frameworks"])
def test_pjrt_device_without_xla_is_rejected(image: str | None) -> None:
    for key in ("environment", "secrets"):
        problem = ("job.environment.pjrt_device", f"jobs.0.{key}.PJRT_DEVICE")
        assert problems_of(job(image=image, **{key: {"PJRT_DEVICE": "cpu"}})) == [problem]


def test_min_bandwidth_of_a_script_in_an_image_with_the_trainer_is_accepted() -> None:
    script = "/opt/trainyard/network_check.py"
    values = job(recipe=None, script=script, image="frameworks", hosts=2, min_bandwidth_gbps=1)
    assert parse(values).jobs[0].min_bandwidth_gbps == 1


@pytest.mark.parametrize(
    ("values", "name"),
    [
        ({"kind": "mx-job", **SCRIPT_JOB}, "DMLC_INTERFACE"),
        ({"kind": "mpi-job", **SCRIPT_JOB}, "OMPI_MCA_btl_tcp_if_include"),
        (RAY_JOB, "RAY_DEDUP_LOGS"),
        ({"kind": "indexed-job", **SCRIPT_JOB}, "DMLC_ROLE"),
        ({"kind": "indexed-job", "torchrun": False, **SCRIPT_JOB}, "MASTER_ADDR"),
    ],
)
def test_unreserved_variable_is_accepted(values: dict[str, Any], name: str) -> None:
    assert conflicts(JobSpec(name="a", environment={name: "1"}, **values)) == []


JOB_KINDS: tuple[JobKind, ...] = get_args(JobKind)

specs = st.fixed_dictionaries(
    {"kind": st.sampled_from(JOB_KINDS), "name": st.sampled_from(["a", "b" * 40, "c" * 52])},
    optional={
        "recipe": st.sampled_from(["digits", "imagenet"]),
        "script": st.just("train.py"),
        "accelerator": st.sampled_from(["v4-32", "v5litepod-8", "nvidia-l4"]),
        "slices": st.integers(1, 3),
        "accelerators_per_host": st.integers(1, 8),
        "elastic": st.fixed_dictionaries({"min_hosts": st.integers(1, 3), "max_hosts": st.integers(1, 3)}),
        "hosts": st.integers(1, 4),
        "processes_per_host": st.integers(1, 4),
        "rendezvous": st.sampled_from(["static", "c10d", "etcd"]),
        "restarts": st.integers(0, 2),
        "min_bandwidth_gbps": st.just(1),
        "queue": st.just("research"),
        "torchrun": st.booleans(),
        "suspend": st.booleans(),
        "interactive": st.booleans(),
    },
)


@pytest.mark.parametrize("kind", JOB_KINDS)
@given(hosts=st.integers(1, 10_000))
def test_longest_job_name_is_accepted_and_a_longer_one_rejected(kind: JobKind, hosts: int) -> None:
    spec = JobSpec(name="a", kind=kind, script="a.py", hosts=hosts)
    longest = "a" * (LABEL_LIMIT - len(KINDS[kind].longest_suffix(spec)))
    assert all(check_label(longest + suffix) for suffix in KINDS[kind].label_suffixes(spec))
    assert conflicts(JobSpec(name=longest, kind=kind, script="a.py", hosts=hosts)) == []
    too_long = JobSpec(name=longest + "a", kind=kind, script="a.py", hosts=hosts)
    assert [each.code for each in conflicts(too_long)] == ["job.name.too_long"]


@settings(max_examples=300, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(values=specs)
def test_job_spec_without_conflicts_renders_valid_names(values: dict[str, Any]) -> None:
    spec = JobSpec.model_validate(values)
    problems = conflicts(spec)
    assert all(each.path[0] in JobSpec.model_fields and each.message for each in problems)
    if not problems:
        found = manifests(spec, ON_TPUS if spec.tpu else ON_GPUS)
        assert all(check_label(each["metadata"].get("name", "a")) for each in found)


@pytest.mark.parametrize("flags", [{"batch_size": -8}, {"batch-size": "many", "accumulate": 2}, {"accumulate": 2e9}])
def test_invalid_flag_has_only_one_problem(flags: dict[str, Any]) -> None:
    assert problems_of(job(flags=flags)) == [("job.flags.wrong_value", f"jobs.0.flags.{next(iter(flags))}")]
