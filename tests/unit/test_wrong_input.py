"""Wrong configurations are refused with the key, the value, what is allowed and what to do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from settings.problems import SYNONYMS, TIME_TO_LIVE, ConfigError
from stack.config import parse
from tests.problems import refused
from tests.unit.refused import (
    JOB,
    PLATFORM,
    assert_refused_in_one_line,
    cloud,
    cluster,
    job,
    platform,
    refusals,
    without,
)

CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "zero hosts": (job(hosts=0), ("trainyard:jobs[0].hosts = 0:", "integer from 1 to 10000", "write `hosts: 1`")),
    "hosts in quotes": (job(hosts="2"), ('jobs[0].hosts = "2":', "integer from 1", "write `hosts: 2`, without quotes")),
    "deadline in hours": (job(deadline_seconds="1h"), ('= "1h":', "an integer from 1 to", "`deadline_seconds: 3600`")),
    "no name": (without("name"), ("jobs[0].name: is missing", "add `name: digits`")),
    "cpu of a job": (job(cpu=2), ("unknown key; write resources.cpu, which is `resources: {cpu: ...}`;",)),
    "job in the place of its recipe": (
        job(recipe="mnist-spmd"),
        ('jobs[0].recipe = "mnist-spmd":', "an example in docs/recipes", "`- mnist-spmd`", "digits, imagenet"),
    ),
    "foreign key": (job(zzz=2), ("jobs[0].zzz = 2: unknown key; remove it", "allowed here: name, kind")),
    "off without quotes": (job(flags={"wandb": False}), ("flags.wandb = false:", "off, auto", "in quotes")),
    "flags as a text": (job(flags="--epochs=2"), ("must be a mapping", "docs/config.md, as in `epochs: 2`")),
    "variable with dash": (
        job(environment={"A-B": "1"}),
        ("environment.A-B: the name must be letters, digits and '_'",),
    ),
    "links too fast": (job(min_bandwidth_gbps=200_000), ("above 0 and at most 100000", "`min_bandwidth_gbps: 100000`")),
    "misspelt top key": (
        {"platform": PLATFORM, "jobs": [], "job": []},
        ("trainyard:job = []: unknown key; write jobs", "allowed here: platform, jobs"),
    ),
    "platform as a string": (
        {"platform": "local", "jobs": []},
        ('platform = "local":', "must be a mapping", "kind (one of local, kubeconfig, gke, eks)"),
    ),
}
CODES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "no recipe": (without("recipe"), ("job.recipe.missing", "jobs.0.recipe")),
    "unknown recipe by name": ({"platform": PLATFORM, "jobs": ["digit"]}, ("stack.jobs.unknown_recipe", "jobs.0")),
    "flag that the trainer has not": (job(flags={"epoch": 3}), ("job.flags.unknown", "jobs.0.flags.epoch")),
    "flag of another recipe": (job(flags={"arch": "resnet18"}), ("job.flags.of_other_recipe", "jobs.0.flags.arch")),
    "CUDA without a GPU": (job(flags={"device": "cuda"}), ("job.device.no_gpu", "jobs.0.flags.device")),
    "XLA without its image": (job(flags={"device": "xla"}), ("job.device.no_xla", "jobs.0.flags.device")),
    "CPUs of a TPU host": (
        cloud(accelerator="v4-32", flags={"device": "cpu"}),
        ("job.device.not_cpu", "jobs.0.flags.device"),
    ),
    "compiled twice": (job(runtime="xla", flags={"compile": True}), ("job.compile.on_xla", "jobs.0.flags.compile")),
    "variable of torchrun": (
        job(environment={"MASTER_ADDR": "a"}),
        ("job.environment.taken", "jobs.0.environment.MASTER_ADDR"),
    ),
    "variable of a TPU host": (
        cloud(accelerator="v4-32", environment={"TPU_WORKER_ID": 0}),
        ("job.environment.taken", "jobs.0.environment.TPU_WORKER_ID"),
    ),
    "variable of XLA's image": (
        job(environment={"PJRT_DEVICE": "CPU"}),
        ("job.environment.pjrt_device", "jobs.0.environment.PJRT_DEVICE"),
    ),
    "images from nowhere": (
        job(recipe="imagenet", flags={"fake_data": False}),
        ("job.fake_data.no_data_dir", "jobs.0.flags.fake_data"),
    ),
    "two processes on a GPU": (
        cloud(accelerator="nvidia-l4", processes_per_host=2),
        ("job.processes_per_host.too_many", "jobs.0.processes_per_host"),
    ),
    "a namespace that a stack would remove": (
        cluster(namespace="default"),
        ("kubeconfig.namespace.reserved", "platform.namespace"),
    ),
    "kubeconfig that is not there": (
        cluster(kubeconfig="/no/such/file"),
        ("kubeconfig.context.unknown", "platform.context"),
    ),
    "negative hosts": (job(hosts=-2), ("settings.greater_than_equal", "jobs.0.hosts")),
    "hosts in words": (job(hosts="two"), ("settings.int_type", "jobs.0.hosts")),
    "half a host": (job(hosts=2.5), ("settings.int_type", "jobs.0.hosts")),
    "hosts yes": (job(hosts=True), ("settings.int_type", "jobs.0.hosts")),
    "no hosts value": (job(hosts=None), ("settings.int_type", "jobs.0.hosts")),
    "zero processes": (job(processes_per_host=0), ("settings.greater_than_equal", "jobs.0.processes_per_host")),
    "negative restarts": (job(restarts=-1), ("settings.greater_than_equal", "jobs.0.restarts")),
    "zero deadline": (job(deadline_seconds=0), ("settings.greater_than_equal", "jobs.0.deadline_seconds")),
    "deadline in days": (job(deadline_seconds="2 days"), ("settings.int_type", "jobs.0.deadline_seconds")),
    "deadline in words": (job(deadline_seconds="long"), ("settings.int_type", "jobs.0.deadline_seconds")),
    "time of a stack in days": (
        {"platform": PLATFORM, "jobs": [JOB], "ttl_hours": "1d"},
        ("settings.float_type", "ttl_hours"),
    ),
    "grace of a day": (job(grace_seconds=86400), ("settings.less_than_equal", "jobs.0.grace_seconds")),
    "name in capitals": (job(name="Digits"), ("settings.dns_label", "jobs.0.name")),
    "name with underscore": (job(name="my_job"), ("settings.dns_label", "jobs.0.name")),
    "empty name": (job(name=""), ("settings.dns_label", "jobs.0.name")),
    "name is a number": (job(name=7), ("settings.string_type", "jobs.0.name")),
    "name of 64": (job(name="a" * 64), ("settings.dns_label", "jobs.0.name")),
    "name too long with suffix": (job(name="a" * 62), ("job.name.too_long", "jobs.0.name")),
    "unknown recipe": (job(recipe="digit"), ("settings.literal_error", "jobs.0.recipe")),
    "unknown kind": (job(kind="job"), ("settings.literal_error", "jobs.0.kind")),
    "time to live": (job(time_to_live=60), ("settings.unknown_key", "jobs.0.time_to_live")),
    "zero CPUs": (job(resources={"cpu": 0}), ("settings.cpu", "jobs.0.resources.cpu")),
    "memory without unit": (job(resources={"memory": 2}), ("settings.memory", "jobs.0.resources.memory")),
    "memory in GB": (job(resources={"memory": "2GB"}), ("settings.memory", "jobs.0.resources.memory")),
    "resources as a list": (job(resources=[1]), ("settings.model_type", "jobs.0.resources")),
    "shared memory beyond memory": (job(shared_memory="1Gi"), ("job.shared_memory.too_large", "jobs.0.shared_memory")),
    "flag of a wrong value": (job(flags={"epochs": "two"}), ("job.flags.wrong_value", "jobs.0.flags.epochs")),
    "flag with dashes": (job(flags={"--lr": 1}), ("settings.key.flag_name", "jobs.0.flags.--lr")),
    "flag with a list": (job(flags={"lr": [1]}), ("settings.flag_value", "jobs.0.flags.lr")),
    "flags as a list": (job(flags=["--epochs=2"]), ("settings.dict_type", "jobs.0.flags")),
    "variables as a list": (job(environment=["A=1"]), ("settings.dict_type", "jobs.0.environment")),
    "variable of ours": (
        job(environment={"PET_NNODES": "9"}),
        ("settings.key.variable_reserved", "jobs.0.environment.PET_NNODES"),
    ),
    "a budget without end": (
        {"platform": PLATFORM, "jobs": [JOB], "budget": float("inf")},
        ("settings.finite_number", "budget"),
    ),
    "a budget of nothing": ({"platform": PLATFORM, "jobs": [JOB], "budget": 0}, ("settings.greater_than", "budget")),
    "link in words": (job(min_bandwidth_gbps="fast"), ("settings.float_type", "jobs.0.min_bandwidth_gbps")),
    "variable yes": (job(environment={"A": True}), ("settings.variable_value", "jobs.0.environment.A")),
    "image with a blank": (job(image="my image"), ("settings.image_reference", "jobs.0.image")),
    "jobs as a mapping": ({"platform": PLATFORM, "jobs": JOB}, ("settings.tuple_type", "jobs")),
    "job as a number": ({"platform": PLATFORM, "jobs": [7]}, ("settings.model_type", "jobs.0")),
    "two jobs of one name": ({"platform": PLATFORM, "jobs": [JOB, JOB]}, ("job.name.taken", "jobs.1.name")),
    "no platform": ({"jobs": [JOB]}, ("settings.missing", "platform")),
    "no jobs": ({"platform": PLATFORM}, ("settings.missing", "jobs")),
    "platform without kind": ({"platform": {}, "jobs": []}, ("settings.missing_kind", "platform.kind")),
    "platform of unknown kind": (
        {"platform": {"kind": "azure"}, "jobs": []},
        ("settings.unknown_kind", "platform.kind"),
    ),
    "no nodes": (platform(nodes=0), ("settings.greater_than_equal", "platform.nodes")),
    "many nodes": (platform(nodes=99), ("settings.less_than_equal", "platform.nodes")),
    "privileged port": (platform(port=443), ("settings.greater_than_equal", "platform.port")),
    "key of another kind": (platform(context="x"), ("settings.unknown_key", "platform.context")),
    "long cluster name": (platform(name="a" * 33), ("settings.string_too_long", "platform.name")),
    "namespace of others": (
        platform(namespace="kube-system"),
        ("settings.namespace_not_deletable", "platform.namespace"),
    ),
    "name of a cluster": (platform(name="My_Cluster"), ("settings.cluster_name", "platform.name")),
    "namespace of the cluster": (
        cluster(namespace="kube-system", create_namespace=False),
        ("settings.namespace_of_others", "platform.namespace"),
    ),
    "no context": (
        {"platform": {"kind": "kubeconfig", "image": "x"}, "jobs": []},
        ("settings.missing", "platform.context"),
    ),
    "bucket without kind": (cluster(bucket={}), ("settings.missing_kind", "platform.bucket.kind")),
    "bucket of unknown scheme": (
        cluster(bucket={"kind": "url", "url": "ftp://x"}),
        ("settings.bucket_url", "platform.bucket.url"),
    ),
    "claim with a url": (
        cluster(bucket={"kind": "claim", "url": "s3://x"}),
        ("settings.unknown_key", "platform.bucket.url"),
    ),
    "unknown access mode": (
        cluster(bucket={"kind": "claim", "access_mode": "RWX"}),
        ("settings.literal_error", "platform.bucket.access_mode"),
    ),
}
"""Settings with the code and path of what is wrong with them."""


@pytest.mark.parametrize("name", CASES)
def test_refused_in_one_line(name: str) -> None:
    assert_refused_in_one_line(CASES[name])


@pytest.mark.parametrize(
    ("values", "meant"),
    [
        (job(host=2), "hosts"),
        (job(nproc_per_node=2), "processes_per_host"),
        (job(replicas=2), "hosts"),
        (job(deadline=60), "deadline_seconds"),
        (job(shm="1Gi"), "shared_memory"),
        (job(processes=2), "processes_per_host"),
        (job(ttl=2), "deadline_seconds"),
        ({"platform": PLATFORM, "jobs": [JOB], "ttl": 2}, "ttl_hours"),
        (job(cpu=2), "resources.cpu, which is `resources: {cpu: ...}`"),
        (job(wandb="online"), "flags.wandb, which is `flags: {wandb: ...}`"),
        (job(elastic={"min": 1, "max_hosts": 2, "min_hosts": 1}), "min_hosts"),
        (job(elastic={"max": 1, "max_hosts": 2, "min_hosts": 1}), "max_hosts"),
        (job(pool="a"), "accelerator"),
        (job(resources={"cpus": 1}), "cpu"),
        (job(resources={"mem": "2Gi"}), "memory"),
    ],
    ids=str,
)
def test_unknown_key_gets_the_key_that_was_meant(values: dict[str, Any], meant: str) -> None:
    [(code, _)] = refused(values)
    assert code == "settings.unknown_key"
    assert f"unknown key; write {meant};" in refusals(values)[0]


@pytest.mark.parametrize("name", CODES)
def test_settings_with_one_problem_are_refused_with_its_code(name: str) -> None:
    values, problem = CODES[name]
    assert refused(values) == [problem]


def test_all_problems_at_once_in_the_order_of_the_keys() -> None:
    values = {"platform": {"kind": "local", "nodes": 0, "prot": 1}, "jobs": [{**JOB, "hosts": 0}, {**JOB, "name": "B"}]}
    keys = [line.partition(" = ")[0] for line in refusals(values)]
    assert keys == [
        "trainyard:platform.nodes",
        "trainyard:platform.prot",
        "trainyard:jobs[0].hosts",
        "trainyard:jobs[1].name",
    ]


def test_a_long_value_is_cut() -> None:
    (line,) = refusals(job(name="A" * 500))
    assert len(line) < 260


@pytest.mark.parametrize("character", "a9=:.-@/ _")
def test_a_value_of_any_length_is_refused_at_once(character: str) -> None:
    begun = time.process_time()
    refusals(job(name=character * 20_000, wandb="a1" * 10_000))
    assert time.process_time() - begun < 1


def test_contexts_that_there_are_get_named(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("contexts: [{name: kind-one}, {name: k3d-two}]", encoding="utf-8")
    (line,) = refusals(cluster(kubeconfig=str(file)))
    assert line.endswith("write one of kind-one, k3d-two")
    assert parse(cluster(kubeconfig=str(file), context="k3d-two")).platform.kind == "kubeconfig"


@pytest.mark.parametrize("namespace", ["default", "kube-team", "gke-team"])
def test_a_namespace_that_is_given(tmp_path: Path, namespace: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("contexts: [{name: kind}]", encoding="utf-8")
    given = {"kubeconfig": str(file), "namespace": namespace, "create_namespace": False}
    assert parse(cluster(**given)).platform.namespace == namespace


def test_a_file_that_is_no_kubeconfig(tmp_path: Path) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text("- 1", encoding="utf-8")
    (line,) = refusals(cluster(kubeconfig=str(file)))
    assert line.startswith("trainyard:platform.kubeconfig = ")
    assert "is not a kubeconfig" in line


def test_a_secret_is_never_shown() -> None:
    key = "0123456789abcdef0123456789abcdef01234567"
    for values in (job(secrets={"A": key}), job(environment={"A_TOKEN": key}), job(secrets={"A": f"{key[:20]}"})):
        assert key[:20] not in "".join(refusals(values))


def test_a_secret_of_the_stack_must_be_encrypted() -> None:
    values = job(secrets={"WANDB_API_KEY": "wandb"})
    with pytest.raises(ConfigError, match="contain secrets:wandb in clear"):
        parse(values, {"wandb": False})
    assert parse(values, {"wandb": True}).jobs[0].secrets == {"WANDB_API_KEY": "wandb"}


@pytest.mark.parametrize("key", sorted({*SYNONYMS.values(), *TIME_TO_LIVE}))
def test_what_is_written_in_place_of_others_keys_is_a_key(key: str) -> None:
    reference = (Path(__file__).parents[2] / "docs" / "config.md").read_text(encoding="utf-8")
    assert f"| `{key.rpartition('.')[2]}`" in reference
