"""Wrong configurations are refused with the key, the value, what is allowed and what to do."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from settings.problems import ConfigError
from settings.suggestions import OUR_KEYS, TIME_TO_LIVE
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
    "negative hosts": (job(hosts=-2), ("jobs[0].hosts = -2:", "integer from 1 to 10000")),
    "hosts in words": (job(hosts="two"), ('jobs[0].hosts = "two":', "integer from 1 to 10000")),
    "hosts in quotes": (job(hosts="2"), ('jobs[0].hosts = "2":', "integer from 1", "write `hosts: 2`, without quotes")),
    "half a host": (job(hosts=2.5), ("jobs[0].hosts = 2.5:", "integer from 1", "write `hosts: 2`")),
    "hosts yes": (job(hosts=True), ("jobs[0].hosts = true:", "integer from 1")),
    "no hosts value": (job(hosts=None), ("jobs[0].hosts = null:", "integer from 1")),
    "zero processes": (job(processes_per_host=0), ("jobs[0].processes_per_host = 0:", "integer from 1 to 256")),
    "negative restarts": (job(restarts=-1), ("jobs[0].restarts = -1:", "integer from 0 to 1000", "`restarts: 0`")),
    "zero deadline": (job(deadline_seconds=0), ("jobs[0].deadline_seconds = 0:", "from 1 to 31536000")),
    "deadline in hours": (job(deadline_seconds="1h"), ('= "1h":', "an integer from 1 to", "`deadline_seconds: 3600`")),
    "deadline in days": (job(deadline_seconds="2 days"), ("write `deadline_seconds: 172800`",)),
    "deadline in words": (job(deadline_seconds="long"), ('deadline_seconds = "long":', "an integer from 1 to")),
    "time of a stack in days": (
        {"platform": PLATFORM, "jobs": [JOB], "ttl_hours": "1d"},
        ('ttl_hours = "1d":', "write `ttl_hours: 24`"),
    ),
    "grace of a day": (job(grace_seconds=86400), ("jobs[0].grace_seconds = 86400:", "write `grace_seconds: 3600`")),
    "name in capitals": (job(name="Digits"), ('jobs[0].name = "Digits":', "DNS label", "'digits-2'")),
    "name with underscore": (job(name="my_job"), ('jobs[0].name = "my_job":', "DNS label")),
    "empty name": (job(name=""), ('jobs[0].name = "":', "DNS label")),
    "name is a number": (job(name=7), ("jobs[0].name = 7:", "must be a string, in quotes")),
    "name of 64": (job(name="a" * 64), ("jobs[0].name", "DNS label", "63")),
    "name too long with suffix": (job(name="a" * 62), ("jobs[0].name", "at most 61 characters", "shorten it")),
    "no name": (without("name"), ("jobs[0].name: is missing", "add `name: digits`")),
    "unknown recipe": (job(recipe="digit"), ('jobs[0].recipe = "digit":', "write one of digits, imagenet")),
    "unknown kind": (job(kind="job"), ('jobs[0].kind = "job":', "write one of indexed-job, pytorch-job, mpi-job")),
    "time to live": (job(time_to_live=60), ("jobs[0].time_to_live = 60:", "unknown key; remove it")),
    "misspelt key": (job(host=2), ("jobs[0].host = 2: unknown key; write hosts", "allowed here: name, kind")),
    "key of torchrun": (job(nproc_per_node=2), ("jobs[0].nproc_per_node = 2: unknown key; write processes_per_host",)),
    "key of Kubernetes": (job(replicas=2), ("jobs[0].replicas = 2: unknown key; write hosts",)),
    "deadline": (job(deadline=60), ("unknown key; write deadline_seconds;",)),
    "shm": (job(shm="1Gi"), ("unknown key; write shared_memory;",)),
    "processes": (job(processes=2), ("unknown key; write processes_per_host;",)),
    "ttl of a job": (job(ttl=2), ("unknown key; write deadline_seconds;",)),
    "ttl of a stack": ({"platform": PLATFORM, "jobs": [JOB], "ttl": 2}, ("unknown key; write ttl_hours;",)),
    "cpu of a job": (job(cpu=2), ("unknown key; write resources.cpu, which is `resources: {cpu: ...}`;",)),
    "memory of a job": (job(memory="2Gi"), ("unknown key; write resources.memory, which is",)),
    "wandb of a job": (job(wandb="online"), ("unknown key; write flags.wandb, which is `flags: {wandb: ...}`;",)),
    "least of elastic hosts": (
        job(elastic={"min": 1, "max_hosts": 2, "min_hosts": 1}),
        ("elastic.min = 1: unknown key; write min_hosts;",),
    ),
    "most of elastic hosts": (
        job(elastic={"max": 1, "max_hosts": 2, "min_hosts": 1}),
        ("elastic.max = 1: unknown key; write max_hosts;",),
    ),
    "pool of a job": (job(pool="a"), ('jobs[0].pool = "a": unknown key; write accelerator',)),
    "job in the place of its recipe": (
        job(recipe="mnist-spmd"),
        ('jobs[0].recipe = "mnist-spmd":', "a whole job of docs/recipes", "`- mnist-spmd`", "digits, imagenet"),
    ),
    "foreign key": (job(zzz=2), ("jobs[0].zzz = 2: unknown key; remove it", "allowed here: name, kind")),
    "misspelt inner key": (
        job(resources={"cpus": 1}),
        ("jobs[0].resources.cpus = 1: unknown key; write cpu", "allowed here: cpu, memory"),
    ),
    "zero CPUs": (job(resources={"cpu": 0}), ("jobs[0].resources.cpu = 0:", "CPUs above 0", "500m")),
    "memory without unit": (job(resources={"memory": 2}), ("resources.memory = 2:", "with a unit", "2Gi")),
    "memory in GB": (job(resources={"memory": "2GB"}), ('resources.memory = "2GB":', "Mi, Gi, Ti", "2Gi")),
    "resources as a list": (job(resources=[1]), ("jobs[0].resources = [1]:", "mapping", "cpu, memory")),
    "shared memory beyond memory": (
        job(shared_memory="1Gi"),
        ('jobs[0].shared_memory = "1Gi":', "less than resources.memory, 900Mi", "raise that or lower this"),
    ),
    "flag of a wrong value": (job(flags={"epochs": "two"}), ('flags.epochs = "two":', "an integer from 1 to")),
    "off without quotes": (job(flags={"wandb": False}), ("flags.wandb = false:", "off, auto", "in quotes")),
    "flag with dashes": (job(flags={"--lr": 1}), ("jobs[0].flags.--lr: the name must", "without its dashes")),
    "flag with a list": (job(flags={"lr": [1]}), ("jobs[0].flags.lr = [1]:", "one string, number, true or false")),
    "flags as a list": (
        job(flags=["--epochs=2"]),
        ('jobs[0].flags = ["--epochs=2"]:', "must be a mapping", "as in `epochs: 2`"),
    ),
    "flags as a text": (job(flags="--epochs=2"), ("must be a mapping", "docs/config.md, as in `epochs: 2`")),
    "variables as a list": (job(environment=["A=1"]), ("must be a mapping", "as in `NCCL_DEBUG: INFO` or `A: '1'`")),
    "variable with dash": (
        job(environment={"A-B": "1"}),
        ("environment.A-B: the name must be letters, digits and '_'",),
    ),
    "variable of ours": (job(environment={"PET_NNODES": "9"}), ("environment.PET_NNODES", "remove it")),
    "a budget without end": (
        {"platform": PLATFORM, "jobs": [JOB], "budget": float("inf")},
        ("trainyard:budget = Infinity:", "must be a number above 0"),
    ),
    "a budget of nothing": (
        {"platform": PLATFORM, "jobs": [JOB], "budget": 0},
        ("trainyard:budget = 0:", "must be a number above 0", "`budget: 20`"),
    ),
    "links too fast": (
        job(min_bandwidth_gbps=200_000),
        ("above 0 and at most 100000", "`min_bandwidth_gbps: 100000`"),
    ),
    "link in words": (job(min_bandwidth_gbps="fast"), ("min_bandwidth_gbps", "above 0 and at most 100000")),
    "variable yes": (job(environment={"A": True}), ("environment.A = true:", "put it in quotes")),
    "image with a blank": (job(image="my image"), ('jobs[0].image = "my image":', "image reference")),
    "jobs as a mapping": ({"platform": PLATFORM, "jobs": JOB}, ("trainyard:jobs = {", "must be a list")),
    "job as a number": ({"platform": PLATFORM, "jobs": [7]}, ("jobs[0] = 7:", "must be a mapping")),
    "two jobs of one name": (
        {"platform": PLATFORM, "jobs": [JOB, JOB]},
        ('jobs[1].name = "digits":', "also the name of jobs[0]", "must be unique"),
    ),
    "no platform": ({"jobs": [JOB]}, ("trainyard:platform: is missing", "add `platform: {kind: local}`")),
    "no jobs": ({"platform": PLATFORM}, ("trainyard:jobs: is missing",)),
    "misspelt top key": (
        {"platform": PLATFORM, "jobs": [], "job": []},
        ("trainyard:job = []: unknown key; write jobs", "allowed here: platform, jobs"),
    ),
    "platform without kind": (
        {"platform": {}, "jobs": []},
        ("platform.kind: is missing", "one of local, kubeconfig, gke, eks"),
    ),
    "platform of unknown kind": (
        {"platform": {"kind": "azure"}, "jobs": []},
        ('platform.kind = "azure": is unknown', "one of local, kubeconfig, gke, eks"),
    ),
    "platform as a string": (
        {"platform": "local", "jobs": []},
        ('platform = "local":', "must be a mapping", "kind (one of local, kubeconfig, gke, eks)"),
    ),
    "no nodes": (platform(nodes=0), ("trainyard:platform.nodes = 0:", "integer from 1 to 8", "write `nodes: 1`")),
    "many nodes": (platform(nodes=99), ("platform.nodes = 99:", "integer from 1 to 8")),
    "privileged port": (platform(port=443), ("platform.port = 443:", "integer from 1024 to 65535")),
    "key of another kind": (platform(context="x"), ("platform.context", "unknown key", "allowed here: kind, name")),
    "long cluster name": (platform(name="a" * 33), ("platform.name", "at most 32 characters")),
    "namespace of others": (
        platform(namespace="kube-system"),
        ('namespace = "kube-system":', "that the stack can create"),
    ),
    "name of a cluster": (platform(name="My_Cluster"), ("platform.name", "DNS label: 1 to 32 lower-case")),
    "namespace of the cluster": (
        cluster(namespace="kube-system", create_namespace=False),
        ('namespace = "kube-system":', "is the namespace of the cluster itself", "write for example 'training'"),
    ),
    "no context": ({"platform": {"kind": "kubeconfig", "image": "x"}, "jobs": []}, ("platform.context: is missing",)),
    "bucket without kind": (cluster(bucket={}), ("platform.bucket.kind: is missing", "one of claim, url")),
    "bucket of unknown scheme": (
        cluster(bucket={"kind": "url", "url": "ftp://x"}),
        ('platform.bucket.url = "ftp://x":', "gs:// or s3://"),
    ),
    "claim with a url": (
        cluster(bucket={"kind": "claim", "url": "s3://x"}),
        ("platform.bucket.url", "unknown key", "allowed here: kind, size"),
    ),
    "unknown access mode": (
        cluster(bucket={"kind": "claim", "access_mode": "RWX"}),
        ('platform.bucket.access_mode = "RWX":', "ReadWriteOnce, ReadWriteMany"),
    ),
}
CODES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "no recipe": (without("recipe"), ("job.recipe.missing", "jobs.0.recipe")),
    "unknown recipe by name": ({"platform": PLATFORM, "jobs": ["digit"]}, ("stack.jobs.unknown_recipe", "jobs.0")),
    "flag that the trainer has not": (job(flags={"epoch": 3}), ("job.flags.unknown", "jobs.0.flags.epoch")),
    "flag of another recipe": (job(flags={"arch": "resnet18"}), ("job.flags.unknown", "jobs.0.flags.arch")),
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
}
"""Settings with the code and path of what is wrong with them."""


@pytest.mark.parametrize("name", CASES)
def test_refused_in_one_line(name: str) -> None:
    assert_refused_in_one_line(CASES[name])


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


@pytest.mark.parametrize("key", sorted({*OUR_KEYS.values(), *TIME_TO_LIVE}))
def test_what_is_written_in_place_of_others_keys_is_a_key(key: str) -> None:
    reference = (Path(__file__).parents[2] / "docs" / "config.md").read_text(encoding="utf-8")
    assert f"| `{key.rpartition('.')[2]}`" in reference
