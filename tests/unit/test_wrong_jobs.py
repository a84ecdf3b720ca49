"""Jobs whose keys do not go together are refused, each in one line that says what does."""

from __future__ import annotations

from typing import Any

import pytest

from stack.config import parse
from tests.problems import refused
from tests.unit.refused import JOB, PLATFORM, assert_refused_in_one_line, cloud, job, refusals

CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "generation without topology": (cloud(accelerator="v4"), ("jobs[0].topology = null:", "add a topology")),
    "secret in the place of its name": (
        job(secrets={"WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567"}),
        ("jobs[0].secrets.WANDB_API_KEY: must be the name of a secret",),
    ),
}
RAY: dict[str, Any] = {
    **{"kind": "ray-job", "recipe": None, "script": "/opt/team/train.py", "image": "example.com/ray:1"},
    **{"shared_memory": "256Mi", "resources": {"cpu": "500m", "memory": "1Gi"}},
}
CODES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "recipe and script": (job(script="a.py"), ("job.script.with_recipe", "jobs.0.script")),
    "args without script": (job(args=["a"]), ("job.args.without_script", "jobs.0.args")),
    "flags of a script": (
        {"platform": PLATFORM, "jobs": [{**JOB, "recipe": None, "script": "a.py", "flags": {"a": 1}}]},
        ("job.flags.without_recipe", "jobs.0.flags"),
    ),
    "recipe without torch": (job(kind="mx-job"), ("job.recipe.needs_torch", "jobs.0.recipe")),
    "recipe of a RayJob": (
        job(**{**RAY, "script": None, "recipe": "digits"}),
        ("job.recipe.needs_torch", "jobs.0.recipe"),
    ),
    "RayJob on TPUs": (
        cloud(**RAY, accelerator="v4-32"),
        ("job.kind.not_on_tpus", "jobs.0.kind"),
    ),
    "elastic RayJob": (job(**RAY, elastic={"min_hosts": 1, "max_hosts": 2}), ("job.elastic.kind", "jobs.0.elastic")),
    "rendezvous of a RayJob": (
        job(**RAY, rendezvous="static"),
        ("job.rendezvous.without_torchrun_kind", "jobs.0.rendezvous"),
    ),
    "object store of a RayJob": (
        job(**{**RAY, "shared_memory": "100Mi"}),
        ("job.shared_memory.of_ray_job", "jobs.0.shared_memory"),
    ),
    "CPUs of a RayJob": (
        job(**{**RAY, "resources": {"cpu": "100m", "memory": "1Gi"}}),
        ("job.resources.cpu_of_ray_job", "jobs.0.resources.cpu"),
    ),
    "memory of a RayJob": (
        job(**{**RAY, "resources": {"cpu": 1, "memory": "255Mi"}, "shared_memory": "200Mi"}),
        ("job.resources.memory_of_ray_job", "jobs.0.resources.memory"),
    ),
    "name too long for a RayJob": (job(**RAY, name="a" * 48), ("job.name.too_long", "jobs.0.name")),
    "accelerator on this machine": (job(accelerator="nvidia-l4"), ("job.accelerator.local", "jobs.0.accelerator")),
    "MPI on TPUs": (cloud(accelerator="v4-32", kind="mpi-job"), ("job.kind.not_on_tpus", "jobs.0.kind")),
    "PyTorchJob on TPUs": (cloud(accelerator="v4-32", kind="pytorch-job"), ("job.kind.not_on_tpus", "jobs.0.kind")),
    "slices of another kind": (cloud(accelerator="v4-32", slices=2), ("job.slices.kind", "jobs.0.slices")),
    "slices of several GPUs": (
        cloud(accelerator="nvidia-l4", accelerators_per_host=2, slices=2),
        ("job.slices.without_tpu", "jobs.0.slices"),
    ),
    "processes of an MXJob": (
        job(kind="mx-job", recipe=None, script="a.py", processes_per_host=2),
        ("job.processes_per_host.of_mx_job", "jobs.0.processes_per_host"),
    ),
    "hidden GPUs": (
        cloud(accelerator="nvidia-l4", environment={"CUDA_VISIBLE_DEVICES": "0"}),
        ("job.environment.hides_gpus", "jobs.0.environment.CUDA_VISIBLE_DEVICES"),
    ),
    "GPUs hidden by a secret": (
        cloud(accelerator="nvidia-l4", secrets={"NVIDIA_VISIBLE_DEVICES": "gpus"}),
        ("job.environment.hides_gpus", "jobs.0.secrets.NVIDIA_VISIBLE_DEVICES"),
    ),
    "CPUs of a GPU host": (
        cloud(accelerator="nvidia-l4", flags={"device": "cpu"}),
        ("job.device.not_cpu", "jobs.0.flags.device"),
    ),
    "all memory is shared": (job(shared_memory="900Mi"), ("job.shared_memory.too_large", "jobs.0.shared_memory")),
    "Weights & Biases without a key": (job(flags={"wandb": "online"}), ("job.wandb.no_key", "jobs.0.flags.wandb")),
    "a NUL in a variable": (job(environment={"A": "a\0"}), ("job.text.control_character", "jobs.0.environment.A")),
    "a NUL in an argument": (
        job(recipe=None, script="./a.py", args=["a", "\x1b[0m"]),
        ("job.text.control_character", "jobs.0.args.1"),
    ),
    "GPUs on TPUs": (
        cloud(accelerator="v4-32", accelerators_per_host=2),
        ("job.accelerators_per_host.without_gpu", "jobs.0.accelerators_per_host"),
    ),
    "processes of several slices": (
        cloud(accelerator="v4-32", processes_per_host=4, slices=2, kind="jobset"),
        ("job.processes_per_host.of_slices", "jobs.0.processes_per_host"),
    ),
    "PyTorch by itself on TPUs": (
        cloud(accelerator="v4-32", runtime="torch"),
        ("job.runtime.torch_on_tpu", "jobs.0.runtime"),
    ),
    "XLA with MXNet": (
        job(runtime="xla", kind="mx-job", recipe=None, script="a.py"),
        ("job.runtime.without_pytorch", "jobs.0.runtime"),
    ),
    "elastic kind that is not": (
        job(elastic={"min_hosts": 1, "max_hosts": 1}, kind="jobset"),
        ("job.elastic.kind", "jobs.0.elastic"),
    ),
    "elastic TPUs": (
        cloud(accelerator="v4-8", elastic={"min_hosts": 1, "max_hosts": 1}),
        ("job.elastic.tpu", "jobs.0.elastic"),
    ),
    "servers of another kind": (job(parameter_servers=2), ("job.parameter_servers.kind", "jobs.0.parameter_servers")),
    "links without torchrun": (
        job(kind="mpi-job", recipe=None, script="/a.py", min_bandwidth_gbps=1),
        ("job.min_bandwidth_gbps.without_torchrun", "jobs.0.min_bandwidth_gbps"),
    ),
    "links in an image of one's own": (
        job(recipe=None, script="/a.py", image="example.com/a:1", min_bandwidth_gbps=1),
        ("job.min_bandwidth_gbps.own_image", "jobs.0.min_bandwidth_gbps"),
    ),
    "rendezvous of another kind": (
        job(kind="train-job", rendezvous="c10d"),
        ("job.rendezvous.kind", "jobs.0.rendezvous"),
    ),
    "rendezvous of a PyTorchJob": (
        job(kind="pytorch-job", rendezvous="c10d"),
        ("job.rendezvous.operator_static", "jobs.0.rendezvous"),
    ),
    "rendezvous of an MXJob": (
        job(kind="mx-job", recipe=None, script="a.py", rendezvous="c10d"),
        ("job.rendezvous.without_torchrun_kind", "jobs.0.rendezvous"),
    ),
    "rendezvous of TPUs": (
        cloud(accelerator="v4-32", rendezvous="c10d"),
        ("job.rendezvous.of_tpu_hosts", "jobs.0.rendezvous"),
    ),
    "secret in clear": (
        job(environment={"WANDB_API_KEY": "abc"}),
        ("job.environment.secret", "jobs.0.environment.WANDB_API_KEY"),
    ),
    "secret that the stack does not have": (
        job(secrets={"WANDB_API_KEY": "wandb"}),
        ("job.secrets.unknown", "jobs.0.secrets.WANDB_API_KEY"),
    ),
    "secret and variable": (
        job(secrets={"A": "wandb"}, environment={"A": "1"}),
        ("job.environment.also_secret", "jobs.0.environment.A"),
    ),
    "queue of an MXJob": (
        job(kind="mx-job", recipe=None, script="a.py", queue="research"),
        ("job.queue.kind", "jobs.0.queue"),
    ),
    "a variable in an argument": (
        job(recipe=None, script="./trainer/network_check.py", args=["--run=$(RUN)"], environment={"RUN": "a"}),
        ("job.text.reference", "jobs.0.args.0"),
    ),
    "a variable of Trainyard's": (
        job(recipe=None, script="./trainer/network_check.py", args=["$(TRAINYARD_BUCKET)/a"]),
        ("job.text.reference", "jobs.0.args.0"),
    ),
    "a variable in another": (
        job(environment={"RUN": "a", "FOLDER": "/tmp/$(RUN)"}),
        ("job.text.reference", "jobs.0.environment.FOLDER"),
    ),
    "no torchrun for a recipe on GPUs": (
        cloud(accelerator="nvidia-l4", accelerators_per_host=2, torchrun=False),
        ("job.torchrun.of_recipe", "jobs.0.torchrun"),
    ),
    "no torchrun for a recipe": (job(torchrun=False), ("job.torchrun.of_recipe", "jobs.0.torchrun")),
    "no torchrun where there is none": (
        job(kind="mpi-job", recipe=None, script="a.py", torchrun=False),
        ("job.torchrun.starts_nothing", "jobs.0.torchrun"),
    ),
    "no torchrun in an elastic job": (
        job(recipe=None, script="a.py", torchrun=False, elastic={"min_hosts": 1, "max_hosts": 1}),
        ("job.torchrun.needed", "jobs.0.torchrun"),
    ),
    "links without a torchrun": (
        job(recipe=None, script="a.py", torchrun=False, min_bandwidth_gbps=1),
        ("job.min_bandwidth_gbps.without_torchrun", "jobs.0.min_bandwidth_gbps"),
    ),
    "suspended in a queue": (job(queue="a", suspend=True), ("job.suspend.in_queue", "jobs.0.suspend")),
    "TPU of the far future": (cloud(accelerator="v9-32"), ("settings.accelerator", "jobs.0.accelerator")),
    "impossible topology": (
        cloud(accelerator="v4", topology="3x3x3"),
        ("settings.topology_impossible", "jobs.0.topology"),
    ),
    "topology of CPUs": (cloud(topology="2x2"), ("settings.topology_without_tpu", "jobs.0.topology")),
    "topology of GPUs": (
        cloud(accelerator="nvidia-l4", topology="2x2"),
        ("settings.topology_without_tpu", "jobs.0.topology"),
    ),
    "slices of GPUs": (
        cloud(accelerator="nvidia-l4", slices=2, kind="jobset"),
        ("job.slices.without_tpu", "jobs.0.slices"),
    ),
    "a TPU of half a chip": (cloud(accelerator="v4-33"), ("settings.tpu_partial_chip", "jobs.0.accelerator")),
    "half a chip with a topology": (
        cloud(accelerator="v4-33", topology="2x2x4"),
        ("settings.tpu_partial_chip", "jobs.0.accelerator"),
    ),
    "idle GPUs": (
        cloud(accelerator="nvidia-l4", accelerators_per_host=4, processes_per_host=1),
        ("job.processes_per_host.idle_gpus", "jobs.0.processes_per_host"),
    ),
    "no room for torch": (
        job(resources={"cpu": 1, "memory": "10Mi"}),
        ("job.resources.memory_too_small", "jobs.0.resources.memory"),
    ),
    "no room for four torches": (
        job(resources={"cpu": 1, "memory": "799Mi"}, processes_per_host=4),
        ("job.resources.memory_too_small", "jobs.0.resources.memory"),
    ),
    "a folder with a line": (job(flags={"job": "a b\n"}), ("job.flags.wrong_value", "jobs.0.flags.job")),
    "a batch beyond all bounds": (
        job(flags={"batch_size": 99999999999999999999}),
        ("job.flags.wrong_value", "jobs.0.flags.batch_size"),
    ),
    "a class in capitals": (job(priority_class="High"), ("settings.priority_class", "jobs.0.priority_class")),
    "GPUs without a GPU": (
        cloud(accelerators_per_host=2),
        ("job.accelerators_per_host.without_gpu", "jobs.0.accelerators_per_host"),
    ),
    "processes on TPUs": (
        cloud(accelerator="v4-32", processes_per_host=2),
        ("job.processes_per_host.of_tpu_host", "jobs.0.processes_per_host"),
    ),
    "XLA on GPUs": (cloud(accelerator="nvidia-l4", runtime="xla"), ("job.runtime.xla_on_gpu", "jobs.0.runtime")),
    "hosts that disagree with the slice": (cloud(accelerator="v4-32", hosts=2), ("job.hosts.of_slice", "jobs.0.hosts")),
    "range upside down": (
        job(elastic={"min_hosts": 3, "max_hosts": 1}),
        ("job.elastic.range", "jobs.0.elastic.min_hosts"),
    ),
    "hosts of an elastic job": (
        job(elastic={"min_hosts": 1, "max_hosts": 2}, hosts=1),
        ("job.hosts.of_elastic", "jobs.0.hosts"),
    ),
    "rendezvous of an elastic job": (
        job(elastic={"min_hosts": 1, "max_hosts": 1}, rendezvous="static"),
        ("job.rendezvous.static_elastic", "jobs.0.rendezvous"),
    ),
    "name too long for an MPIJob": (job(name="a" * 55, kind="mpi-job"), ("job.name.too_long", "jobs.0.name")),
    "name too long for a JobSet": (job(name="a" * 47, kind="jobset"), ("job.name.too_long", "jobs.0.name")),
    "name too long for an etcd": (
        job(name="a" * 59, elastic={"min_hosts": 1, "max_hosts": 1}, rendezvous="etcd"),
        ("job.name.too_long", "jobs.0.name"),
    ),
    "several processes without torchrun": (
        job(recipe=None, script="a.py", torchrun=False, processes_per_host=2),
        ("job.torchrun.several_processes", "jobs.0.torchrun"),
    ),
}
"""Settings with the code and path of what is wrong with them."""


@pytest.mark.parametrize("name", CASES)
def test_refused_in_one_line(name: str) -> None:
    assert_refused_in_one_line(CASES[name])


@pytest.mark.parametrize(
    ("name", "meant"),
    {
        "v100": "nvidia-tesla-v100",
        "V5P-32": "v5p-32",
        "v5e-16": "v5litepod-16",
        "nvidia-v100": "nvidia-tesla-v100",
        "Tesla V100": "nvidia-tesla-v100",
        "NVIDIA_A100": "nvidia-tesla-a100 or nvidia-a100-80gb",
        "L4": "nvidia-l4",
    }.items(),
)
def test_unknown_accelerator_gets_the_name_that_was_meant(name: str, meant: str) -> None:
    values = cloud(accelerator=name)
    assert refused(values) == [("settings.accelerator", "jobs.0.accelerator")]
    assert f"; write {meant}; allowed: " in refusals(values)[0]


@pytest.mark.parametrize("name", CODES)
def test_settings_with_one_problem_are_refused_with_its_code(name: str) -> None:
    values, problem = CODES[name]
    assert refused(values) == [problem]


@pytest.mark.parametrize(
    "values",
    [
        cloud(accelerator="nvidia-l4", accelerators_per_host=4),
        cloud(
            accelerator="nvidia-l4",
            accelerators_per_host=4,
            recipe=None,
            script="/a.py",
            processes_per_host=1,
            image="example.com/a:1",
        ),
        cloud(
            accelerator="nvidia-l4", accelerators_per_host=4, recipe=None, script="/a.py", torchrun=False, image="e/a:1"
        ),
        job(environment={"CUDA_VISIBLE_DEVICES": ""}),
        job(environment={"LINES": "a\n\tb"}),
        job(recipe=None, script="./trainer/network_check.py", args=["$(OTHER)", "$RUN"], environment={"RUN": "$(pwd)"}),
        job(resources={"cpu": "1m", "memory": "200Mi"}),
        job(recipe=None, script="./trainer/network_check.py", resources={"cpu": "1m", "memory": "10Mi"}),
        job(priority_class="gpu.high-prio"),
        job(flags={"wandb": "auto"}),
    ],
    ids=str,
)
def test_what_is_near_and_right(values: dict[str, Any]) -> None:
    assert parse(values).jobs


def test_a_key_of_weights_and_biases_goes_with_online_runs() -> None:
    values = job(flags={"wandb": "online"}, secrets={"WANDB_API_KEY": "wandb"})
    assert parse(values, {"wandb": True}).jobs
