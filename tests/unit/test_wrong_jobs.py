"""Jobs whose keys do not go together are refused, each in one line that says what does."""

from __future__ import annotations

from typing import Any

import pytest

from stack_config import parse
from tests.unit.refused import (
    JOB,
    PLATFORM,
    assert_refused_in_one_line,
    cloud,
    job,
)

CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "recipe and script": (job(script="a.py"), ('jobs[0].script = "a.py":', "not allowed beside `recipe`")),
    "args without script": (job(args=["a"]), ('jobs[0].args = ["a"]:', "`flags` for a recipe")),
    "flags of a script": (
        {"platform": PLATFORM, "jobs": [{**JOB, "recipe": None, "script": "a.py", "flags": {"a": 1}}]},
        ("jobs[0].flags", "write `args` for a script"),
    ),
    "recipe without torch": (job(kind="mx-job"), ('jobs[0].recipe = "digits":', "needs torch", "`script:`")),
    "unknown accelerator": (cloud(accelerator="v100"), ('accelerator = "v100":', "nvidia-l4", "v4-32")),
    "TPU in capitals": (cloud(accelerator="V5P-32"), ('accelerator = "V5P-32":', "write v5p-32;", "v6e (v6e-N)")),
    "TPU by its generation": (cloud(accelerator="v5e-16"), ("jobs[0].accelerator", "write v5litepod-16;")),
    "GPU without its model's line": (cloud(accelerator="nvidia-v100"), ("accelerator", "write nvidia-tesla-v100;")),
    "GPU in NVIDIA's own words": (cloud(accelerator="Tesla V100"), ("accelerator", "write nvidia-tesla-v100;")),
    "GPU of two sizes": (cloud(accelerator="NVIDIA_A100"), ("write nvidia-tesla-a100 or nvidia-a100-80gb;",)),
    "memory by another name": (
        job(resources={"mem": "2Gi"}),
        ("jobs[0].resources.mem", "unknown key; write memory; allowed here: cpu, memory"),
    ),
    "GPU without its maker": (cloud(accelerator="L4"), ('accelerator = "L4":', "write nvidia-l4; allowed: a GPU")),
    "TPU of the far future": (cloud(accelerator="v9-32"), ("accelerator", "write a GPU", "generation v4 (v4-N), v5e")),
    "accelerator on this machine": (
        job(accelerator="nvidia-l4"),
        ('jobs[0].accelerator = "nvidia-l4":', "CPUs only", "remove it"),
    ),
    "generation without topology": (cloud(accelerator="v4"), ("jobs[0].topology = null:", "add a topology")),
    "impossible topology": (
        cloud(accelerator="v4", topology="3x3x3"),
        ('jobs[0].topology = "3x3x3":', "v4 has no slice", "2x2x4"),
    ),
    "topology of CPUs": (cloud(topology="2x2"), ('jobs[0].topology = "2x2":', "TPUs only")),
    "topology of GPUs": (cloud(accelerator="nvidia-l4", topology="2x2"), ("jobs[0].topology", "TPUs only")),
    "MPI on TPUs": (
        cloud(accelerator="v4-32", kind="mpi-job"),
        ('jobs[0].kind = "mpi-job":', "cannot run on TPUs", "write `kind: indexed-job`, or else jobset or train-job"),
    ),
    "PyTorchJob on TPUs": (cloud(accelerator="v4-32", kind="pytorch-job"), ("jobs[0].kind", "completion index")),
    "slices of another kind": (cloud(accelerator="v4-32", slices=2), ("jobs[0].slices = 2:", "`kind: jobset`")),
    "slices of GPUs": (
        cloud(accelerator="nvidia-l4", slices=2, kind="jobset"),
        ("jobs[0].slices = 2:", "are of TPUs, and the job has none", "`slices: 1`"),
    ),
    "slices of several GPUs": (
        cloud(accelerator="nvidia-l4", accelerators_per_host=2, slices=2),
        ("jobs[0].slices = 2:", "are of TPUs, and the job has none"),
    ),
    "a TPU of half a chip": (cloud(accelerator="v4-33"), ('jobs[0].accelerator = "v4-33":', "write a multiple of 2")),
    "half a chip with a topology": (cloud(accelerator="v4-33", topology="2x2x4"), ("jobs[0].accelerator",)),
    "processes of an MXJob": (
        job(kind="mx-job", recipe=None, script="a.py", processes_per_host=2),
        ("jobs[0].processes_per_host = 2:", "is one process", "raise `hosts`"),
    ),
    "idle GPUs": (
        cloud(accelerator="nvidia-l4", accelerators_per_host=4, processes_per_host=1),
        ("jobs[0].processes_per_host = 1:", "the others stay idle", "write 4, or lower `accelerators_per_host`"),
    ),
    "hidden GPUs": (
        cloud(accelerator="nvidia-l4", environment={"CUDA_VISIBLE_DEVICES": "0"}),
        ("jobs[0].environment.CUDA_VISIBLE_DEVICES", "hides GPUs that the job has; remove it"),
    ),
    "GPUs hidden by a secret": (
        cloud(accelerator="nvidia-l4", secrets={"NVIDIA_VISIBLE_DEVICES": "gpus"}),
        ("jobs[0].secrets.NVIDIA_VISIBLE_DEVICES: hides GPUs",),
    ),
    "CPUs of a GPU host": (cloud(accelerator="nvidia-l4", flags={"device": "cpu"}), ("flags.device", "has GPUs")),
    "no room for torch": (
        job(resources={"cpu": 1, "memory": "10Mi"}),
        ('jobs[0].resources.memory = "10Mi":', "Python and torch alone", "write 200Mi or more"),
    ),
    "no room for four torches": (
        job(resources={"cpu": 1, "memory": "799Mi"}, processes_per_host=4),
        ("in 4 processes of a recipe; write 800Mi or more",),
    ),
    "all memory is shared": (job(shared_memory="900Mi"), ("jobs[0].shared_memory", "less than resources.memory")),
    "Weights & Biases without a key": (
        job(flags={"wandb": "online"}),
        ('jobs[0].flags.wandb = "online":', "add `secrets: {WANDB_API_KEY: NAME}`", "or write offline"),
    ),
    "a NUL in a variable": (job(environment={"A": "a\0"}), ("jobs[0].environment.A", "has a control character")),
    "a NUL in an argument": (
        job(recipe=None, script="./a.py", args=["a", "\x1b[0m"]),
        ("jobs[0].args[1]", "has a control character"),
    ),
    "a folder with a line": (job(flags={"job": "a b\n"}), ("jobs[0].flags.job", "must be one folder name")),
    "a batch beyond all bounds": (
        job(flags={"batch_size": 99999999999999999999}),
        ("jobs[0].flags.batch_size", "from 1 to 1000000000"),
    ),
    "a class in capitals": (job(priority_class="High"), ('priority_class = "High":', "a DNS subdomain", "'gpu.high'")),
    "GPUs without a GPU": (cloud(accelerators_per_host=2), ("accelerators_per_host = 2:", "`accelerator: nvidia-l4`")),
    "GPUs on TPUs": (
        cloud(accelerator="v4-32", accelerators_per_host=2),
        ("accelerators_per_host = 2:", "counts GPUs"),
    ),
    "processes on TPUs": (
        cloud(accelerator="v4-32", processes_per_host=2),
        ("processes_per_host = 2:", "is 1", "or 4, one for each"),
    ),
    "processes of several slices": (
        cloud(accelerator="v4-32", processes_per_host=4, slices=2, kind="jobset"),
        ("processes_per_host = 4:", "one process each"),
    ),
    "PyTorch by itself on TPUs": (
        cloud(accelerator="v4-32", runtime="torch"),
        ('jobs[0].runtime = "torch":', "write xla"),
    ),
    "XLA on GPUs": (
        cloud(accelerator="nvidia-l4", runtime="xla"),
        ('jobs[0].runtime = "xla":', "no CUDA since 2.8", "add `image:`"),
    ),
    "XLA with MXNet": (
        job(runtime="xla", kind="mx-job", recipe=None, script="a.py"),
        ('jobs[0].runtime = "xla":', "runs no PyTorch"),
    ),
    "hosts that disagree with the slice": (
        cloud(accelerator="v4-32", hosts=2),
        ("jobs[0].hosts = 2:", "2x2x4 of v4 has 4 hosts of 4 chips", "write 4"),
    ),
    "range upside down": (
        job(elastic={"min_hosts": 3, "max_hosts": 1}),
        ("jobs[0].elastic.min_hosts = 3:", "at most max_hosts, 1"),
    ),
    "elastic kind that is not": (
        job(elastic={"min_hosts": 1, "max_hosts": 1}, kind="jobset"),
        (
            'jobs[0].elastic = {"min_hosts": 1, "max_hosts": 1}:',
            "cannot shrink and grow",
            "write `kind: indexed-job`, or else pytorch-job",
        ),
    ),
    "elastic TPUs": (
        cloud(accelerator="v4-8", elastic={"min_hosts": 1, "max_hosts": 1}),
        ("jobs[0].elastic", "TPU slice"),
    ),
    "hosts of an elastic job": (
        job(elastic={"min_hosts": 1, "max_hosts": 2}, hosts=1),
        ("jobs[0].hosts = 1:", "elastic.max_hosts, 2"),
    ),
    "servers of another kind": (job(parameter_servers=2), ("jobs[0].parameter_servers = 2:", "mx-job only")),
    "links without torchrun": (
        job(kind="mpi-job", recipe=None, script="/a.py", min_bandwidth_gbps=1),
        ("jobs[0].min_bandwidth_gbps = 1", "torchrun"),
    ),
    "links in an image of one's own": (
        job(recipe=None, script="/a.py", image="example.com/a:1", min_bandwidth_gbps=1),
        ("jobs[0].min_bandwidth_gbps = 1", "trainer's image"),
    ),
    "rendezvous of another kind": (
        job(kind="train-job", rendezvous="c10d"),
        ('jobs[0].rendezvous = "c10d":', "meets by static"),
    ),
    "rendezvous of an elastic job": (
        job(elastic={"min_hosts": 1, "max_hosts": 1}, rendezvous="static"),
        ('jobs[0].rendezvous = "static":', "write c10d or etcd"),
    ),
    "rendezvous of a PyTorchJob": (job(kind="pytorch-job", rendezvous="c10d"), ("rendezvous", "add `elastic`")),
    "rendezvous of an MXJob": (
        job(kind="mx-job", recipe=None, script="a.py", rendezvous="c10d"),
        ("rendezvous", "runs no torchrun"),
    ),
    "rendezvous of TPUs": (cloud(accelerator="v4-32", rendezvous="c10d"), ("rendezvous", "find each other")),
    "name too long for an MPIJob": (
        job(name="a" * 55, kind="mpi-job"),
        ("jobs[0].name", "at most 54 characters", "'-launcher'"),
    ),
    "name too long for a JobSet": (job(name="a" * 47, kind="jobset"), ("jobs[0].name", "at most 46", "-worker-0-0-")),
    "name too long for an etcd": (
        job(name="a" * 59, elastic={"min_hosts": 1, "max_hosts": 1}, rendezvous="etcd"),
        ("jobs[0].name", "at most 58", "'-etcd'"),
    ),
    "secret in clear": (
        job(environment={"WANDB_API_KEY": "abc"}),
        ("jobs[0].environment.WANDB_API_KEY: is a secret in clear", "`pulumi config set --secret secrets:NAME`"),
    ),
    "secret in the place of its name": (
        job(secrets={"WANDB_API_KEY": "0123456789abcdef0123456789abcdef01234567"}),
        ("jobs[0].secrets.WANDB_API_KEY: must be the name of a secret",),
    ),
    "secret that the stack does not have": (
        job(secrets={"WANDB_API_KEY": "wandb"}),
        (
            "jobs[0].secrets.WANDB_API_KEY: names no secret of this stack",
            "`pulumi config set --secret secrets:wandb` in `make shell`",
        ),
    ),
    "secret and variable": (
        job(secrets={"A": "wandb"}, environment={"A": "1"}),
        ("jobs[0].environment.A: is one of `secrets` too",),
    ),
    "queue of an MXJob": (
        job(kind="mx-job", recipe=None, script="a.py", queue="research"),
        ('jobs[0].queue = "research":', "Kueue does not know", "remove it"),
    ),
    "a variable in an argument": (
        job(recipe=None, script="./trainer/network_check.py", args=["--run=$(RUN)"], environment={"RUN": "a"}),
        ("jobs[0].args[0]", "nothing fills in $(RUN) here; let the program read the variable RUN"),
    ),
    "a variable of Trainyard's": (
        job(recipe=None, script="./trainer/network_check.py", args=["$(TRAINYARD_BUCKET)/a"]),
        ("jobs[0].args[0]", "nothing fills in $(TRAINYARD_BUCKET) here"),
    ),
    "a variable in another": (
        job(environment={"RUN": "a", "FOLDER": "/tmp/$(RUN)"}),
        ("jobs[0].environment.FOLDER", "nothing fills in $(RUN) here"),
    ),
    "no torchrun for a recipe on GPUs": (
        cloud(accelerator="nvidia-l4", accelerators_per_host=2, torchrun=False),
        ("jobs[0].torchrun = false:", "write `script:`"),
    ),
    "no torchrun for a recipe": (job(torchrun=False), ("jobs[0].torchrun = false:", "write `script:`")),
    "no torchrun where there is none": (
        job(kind="mpi-job", recipe=None, script="a.py", torchrun=False),
        ("jobs[0].torchrun = false:", "starts nothing in this job"),
    ),
    "no torchrun in an elastic job": (
        job(recipe=None, script="a.py", torchrun=False, elastic={"min_hosts": 1, "max_hosts": 1}),
        ("jobs[0].torchrun = false:", "`elastic`"),
    ),
    "several processes without torchrun": (
        job(recipe=None, script="a.py", torchrun=False, processes_per_host=2),
        ("jobs[0].torchrun = false:", "`processes_per_host: 1`"),
    ),
    "links without a torchrun": (
        job(recipe=None, script="a.py", torchrun=False, min_bandwidth_gbps=1),
        ("jobs[0].min_bandwidth_gbps = 1", "torchrun"),
    ),
    "suspended in a queue": (job(queue="a", suspend=True), ("jobs[0].suspend = true:", "Kueue suspends")),
}


@pytest.mark.parametrize("name", CASES)
def test_refused_in_one_line(name: str) -> None:
    assert_refused_in_one_line(CASES[name])


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
