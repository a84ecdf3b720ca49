"""JobSpec: settings of a job, as in the stack's file. Examples: jobs that are ready to run."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from infra.builtin_images import EVERY_IMAGE, TRAINER, ImageRef
from infra.hardware import Capacity, PodGroup, gpus
from infra.hardware.gpus import is_accelerator, unknown_accelerator
from infra.hardware.tpus import GENERATIONS, TpuSlice, is_tpu, tpu_slice
from settings.kubernetes_values import parse_cpu, parse_memory
from settings.problem import Invalid
from settings.types import (
    Cpu,
    DnsLabel,
    FlagName,
    Image,
    Memory,
    Scalar,
    SecretName,
    Section,
    Text,
    VariableName,
    match_pattern,
)
from workloads.kinds import KINDS
from workloads.kinds.kind import COORDINATOR, Rendezvous
from workloads.trainer_flags import FLAGS, value_of

JobKind = Literal["indexed-job", "pytorch-job", "mpi-job", "mx-job", "jobset", "train-job", "ray-job"]
Recipe = Literal["digits", "imagenet", "language"]
RuntimeName = Literal["torch", "xla"]

XLA_IMAGE = "xla"
"""Trainyard's image with PyTorch/XLA, by its name in infra.builtin_images."""
CUDA_12_IMAGE = "cuda12"
"""Trainyard's image with torch on CUDA 12."""
ETCD_IMAGE = "etcd"
"""Trainyard's image with etcd."""


def _accelerator(value: str) -> str:
    if not is_accelerator(value):
        raise Invalid("accelerator", unknown_accelerator(value))
    if is_tpu(value) and value not in GENERATIONS:
        # An accelerator type determines its slice, so check it without `topology`.
        tpu_slice(value)
    return value


Accelerator = Annotated[str, AfterValidator(_accelerator)]
"""Name of a GPU as in GKE, a TPU generation, or a TPU accelerator type."""


ClassName = Annotated[
    str,
    match_pattern(
        "priority_class",
        re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"),
        "must be a DNS subdomain: at most 253 lower-case letters, digits, '-' and '.'; write for example 'gpu.high'",
        limit=253,
    ),
]
"""Name of a PriorityClass."""


class ResourcesSpec(Section):
    """Resources of each host of a job. Requests equal limits."""

    cpu: Cpu = "1"
    """CPUs of each host, such as `2`, `0.5` or `500m`."""
    memory: Memory = "2Gi"
    """Memory of each host, its shared memory included, such as `512Mi` or `2Gi`."""

    @property
    def capacity(self) -> Capacity:
        """CPUs and memory as numbers."""
        return Capacity(millicores=parse_cpu(self.cpu), memory=parse_memory(self.memory))


class ElasticSpec(Section):
    """Range in which the number of hosts may change during training."""

    min_hosts: Annotated[int, Field(ge=1, le=10_000)] = Field(examples=[1])
    """Minimum number of hosts; with fewer hosts, training waits until others join."""
    max_hosts: Annotated[int, Field(ge=1, le=10_000)] = Field(examples=[3])
    """Maximum number of hosts, and the number that the job starts with."""


def slice_of(values: dict[str, Any]) -> TpuSlice | None:
    """Return the TPU slice that a job requests, from the values of its fields; None without TPUs."""
    accelerator = values.get("accelerator")
    return tpu_slice(accelerator, values.get("topology")) if accelerator and is_tpu(accelerator) else None


def default_hosts(values: dict[str, Any]) -> int:
    """Return the default number of hosts for the values of a job's other fields."""
    if tpu := slice_of(values):
        return tpu.hosts * int(values["slices"])
    elastic: ElasticSpec | None = values["elastic"]
    return elastic.max_hosts if elastic else 1


def _default_processes(values: dict[str, Any]) -> int:
    """Return the default number of processes per host: one for each GPU.

    The default is one on CPUs, on a TPU host, without torchrun, and for kinds that start their program once per host.
    """
    if slice_of(values) or KINDS[values["kind"]].one_process_per_host or not values["torchrun"]:
        return 1
    return int(values["accelerators_per_host"] or 1)


class JobSpec(Section):
    """Distributed training job."""

    INNER_KEYS: ClassVar[Mapping[str, str]] = MappingProxyType(
        {name: f"flags.{name}" for recipe_flags in FLAGS.values() for name in recipe_flags}
    )
    """Flag of the trainer -> its place in a job. The error for a flag that is not below `flags` suggests this place."""
    name: DnsLabel = Field(examples=["digits"])
    """Name of the job, unique in the stack. The names of its hosts begin with it."""
    kind: JobKind = "indexed-job"
    """Kubernetes resource that runs the job: an Indexed Job, or a custom resource whose operator the stack installs."""
    recipe: Recipe | None = Field(default=None, examples=["digits"])
    """Recipe of the trainer to run. A job has either this or `script`."""
    script: Annotated[str, Field(min_length=1)] | None = Field(default=None, examples=["./train.py"])
    """Python file to run instead of a recipe. By default torchrun starts it. In an `mpi-job`, mpirun starts it; in a
    `ray-job`, the head starts it once; in an `mx-job`, and on TPUs with one process per host, the host starts it
    directly. `./train.py` is a file in the folder of the stack's file, and Trainyard copies it into the pods. Any other
    path is in the image, or below /bucket if the platform mounts its bucket (`local`, or a bucket of kind `claim`)."""
    args: tuple[Text, ...] = ()
    """Arguments of the script, one word each."""
    requirements: Annotated[str, Field(min_length=1)] | None = Field(default=None, examples=["requirements.txt"])
    """File with Python packages that the job's image lacks, in pip's format. It is in the folder of the stack's file or
    below. Trainyard builds an image with these packages; the packages that the image already has do not change."""
    data: Annotated[str, Field(min_length=1)] | None = Field(default=None, examples=["./data"])
    """Data of the job. On `local`, a folder of this machine, which pods see read-only as /data; elsewhere `gs://...`,
    `s3://...` or a path in the stack's bucket. The variable `TRAINYARD_DATA` has its path or URL in the pods. A recipe
    gets it as the flag `data_dir`."""
    torchrun: bool = True
    """Start the script under torchrun. `false` starts it directly, once per host, for example to prepare data. The
    image then needs no torch."""
    accelerator: Accelerator | None = Field(default=None, examples=["nvidia-l4"])
    """GPU or TPU of each host: a GPU by GKE's name, such as `nvidia-tesla-v100`; a TPU by its accelerator type, such as
    `v4-32`, or by its generation (`v5e`) with `topology`. By default the job runs on CPUs."""
    runtime: RuntimeName | None = None
    """`torch` (PyTorch) or `xla` (PyTorch/XLA, in its own image); by default `xla` on TPUs and `torch` elsewhere."""
    topology: str | None = Field(default=None, validate_default=True, examples=["2x2x4"])
    """Chips of a TPU slice along each axis; by default the most compact topology of the accelerator type."""
    slices: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of TPU slices that train together; more than one requires the kind `jobset`."""
    accelerators_per_host: Annotated[int, Field(ge=1, le=16)] | None = None
    """Number of GPUs of each host; by default 1 if `accelerator` is a GPU."""
    elastic: ElasticSpec | None = Field(default=None, examples=["{min_hosts: 1, max_hosts: 3}"])
    """Let hosts leave and join during training (`indexed-job`, `pytorch-job`); by default the number of hosts is
    fixed."""
    hosts: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default_factory=default_hosts, json_schema_extra={"default": 1}
    )
    """Number of hosts that train together; the keys for TPUs, or `elastic`, determine it if they are set."""
    parameter_servers: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of parameter servers of an `mx-job`, in addition to its hosts and a scheduler."""
    processes_per_host: Annotated[int, Field(ge=1, le=256)] = Field(
        default_factory=_default_processes, json_schema_extra={"default": 1}
    )
    """Number of training processes on each host. The default is one per GPU, and one on TPU hosts, on CPUs, with
    `torchrun: false` and in an `mx-job`. A TPU host has one process for all its chips, or one for each chip."""
    rendezvous: Rendezvous | None = None
    """Rendezvous of torchrun: `static` (a host's index determines its ranks), `c10d` (at host 0), or `etcd` (in an etcd
    that the job starts). The default is c10d for an elastic job and an `mpi-job`, and static for other jobs."""
    restarts: Annotated[int, Field(ge=0, le=1000)] = 1
    """Number of times that the whole job may restart from its last checkpoint after a failure. docs/kinds.md lists the
    failures that do not count, such as evictions for most kinds."""
    resources: ResourcesSpec = ResourcesSpec()
    """Resources of each host."""
    shared_memory: Memory = "512Mi"
    """Size of /dev/shm on each host. It is part of the host's memory."""
    flags: dict[FlagName, Scalar] = Field(default_factory=dict)
    """Flags of the trainer: `batch_size: 64` becomes `--batch-size=64`, `amp: true` becomes `--amp`, and
    `parallelism: {shard: 8, tensor: 2}` becomes `--parallelism=shard=8,tensor=2`. A table below lists all flags."""
    environment: dict[VariableName, Text] = Field(default_factory=dict)
    """Environment variables of every training process."""
    secrets: dict[VariableName, SecretName] = Field(default_factory=dict)
    """Environment variables with secret values: `WANDB_API_KEY: wandb` reads the secret that `pulumi config set
    --secret secrets:wandb` stored."""
    image: Image | None = None
    """Image to run; by default the platform's image for the job's `runtime`. If Trainyard builds images, `cuda12` is
    the trainer's image with torch 2.10 on CUDA 12.8, for drivers that are too old for CUDA 13. `cuda12` is the default
    for jobs on V100s, which CUDA 13 does not support. The local platform cannot pull images from a registry; pods with
    other images stay in ImagePullBackOff. `local` builds these images of Trainyard if a job names them: `horovod`
    (TensorFlow and MXNet with Horovod over OpenMPI; images/horovod), `frameworks` (the trainer's image with
    transformers, accelerate, TRL, DeepSpeed and torchtitan), `ray` (Ray with the trainer's torch; images/ray), and
    `stores` (an object store for examples; images/stores). Of these, GKE and EKS build only
    `frameworks`."""
    min_bandwidth_gbps: Annotated[float, Field(gt=0, le=100_000)] | None = Field(default=None, examples=[50])
    """Minimum bandwidth in Gbit/s, one way, between any two hosts. The job measures it before training, and fails at
    once if a link is slower. By default the job does not measure it."""
    queue: DnsLabel | None = None
    """Kueue LocalQueue that admits the job when the free capacity is enough for all of its hosts. The stack creates the
    queue on `local`, GKE and EKS (docs/operators.md). By default the job starts at once."""
    priority_class: ClassName | None = None
    """Kubernetes PriorityClass of the hosts, which must exist in the cluster (`kubectl create priorityclass`); by
    default the cluster's default."""
    suspend: bool = False
    """Create the job without starting it, or stop its hosts; `false` starts it again, from its last checkpoint."""
    interactive: bool = False
    """Start the hosts without the program, for training by hand. Addresses, ranks and counts are in their
    environment."""
    deadline_seconds: Annotated[int, Field(ge=1, le=31_536_000)] | None = Field(default=None, examples=[86400])
    """Maximum duration of the job in seconds, restarts included; a `jobset`, a `train-job` and a `ray-job` count again
    from each restart, and so does a recreated host of a `pytorch-job` or an `mx-job`. By default there is no limit."""
    grace_seconds: Annotated[int, Field(ge=0, le=3600)] = 30
    """Seconds from the request to stop until Kubernetes kills a host. Its training processes have 5 s less for their
    last checkpoint; those of an `mpi-job` have no time."""

    @field_validator("recipe", mode="before")
    @classmethod
    def _reject_example(cls, value: object) -> object:
        if value not in get_args(Recipe) and value in example_names():
            raise Invalid(
                "recipe_of_docs",
                f"is an example in docs/recipes, not a recipe of the trainer; write one of "
                f"{', '.join(get_args(Recipe))}, or replace the keys of this job with `- {value}`",
            )
        return value

    @field_validator("topology")
    @classmethod
    def _check_topology(cls, value: str | None, info: ValidationInfo) -> str | None:
        is_on_tpus = slice_of({**info.data, "topology": value}) is not None
        if value is not None and not is_on_tpus and "accelerator" in info.data:
            message = "is allowed only for TPUs; remove this key, or write for example `accelerator: v4`"
            raise Invalid("topology_without_tpu", message)
        return value

    @cached_property
    def tpu(self) -> TpuSlice | None:
        """TPU slice that the job requests; None without TPUs."""
        return slice_of(vars(self))

    @property
    def on_xla(self) -> bool:
        """True if the job runs on PyTorch/XLA."""
        return self.tpu is not None if self.runtime is None else self.runtime == "xla"

    @cached_property
    def image_ref(self) -> ImageRef:
        """Image of the job's hosts: `image` in its settings, else the builtin image for its runtime and GPU."""
        if self.image:
            return ImageRef(builtin=self.image) if self.image in EVERY_IMAGE else ImageRef(reference=self.image)
        if self.on_xla:
            return ImageRef(builtin=XLA_IMAGE)
        gpu = gpus.GPUS.get(self.accelerator or "")
        return ImageRef(builtin=CUDA_12_IMAGE if gpu and not gpu.runs_cuda_13 else TRAINER)

    @property
    def has_user_image(self) -> bool:
        """True if its image is not one of Trainyard's, so its contents are unknown."""
        return not self.image_ref.builtin

    @property
    def accelerators(self) -> int:
        """Number of GPUs or TPU chips of each host."""
        if self.tpu:
            return self.tpu.chips_per_host
        return (self.accelerators_per_host or 1) if self.accelerator else 0

    @property
    def bucket_folder(self) -> str:
        """Name of the job's folders in the bucket: the flag `job`, else the job's name."""
        return str(self.flags.get("job", self.name))

    def flag(self, name: str) -> Scalar | None:
        """Return the value of a flag of the trainer, which may be set by its alias; None if it is not set."""
        return value_of(self.recipe, self.flags, name) if self.recipe else None

    @property
    def rendezvous_backend(self) -> Rendezvous:
        """Rendezvous backend of the job: `rendezvous` in its settings, else the default."""
        return self.rendezvous or ("c10d" if self.elastic else KINDS[self.kind].default_rendezvous)

    @property
    def host_group(self) -> PodGroup:
        """Hosts of the job with their requests."""
        return PodGroup(
            count=self.hosts,
            per_pod=self.resources.capacity,
            accelerator=self.accelerator,
            tpu=self.tpu,
            accelerators=self.accelerators,
            key="elastic.max_hosts" if self.elastic else "hosts",
        )

    @property
    def pod_groups(self) -> tuple[PodGroup, ...]:
        """All pods of the job with their requests, by role: the hosts first."""
        groups = (self.host_group, *KINDS[self.kind].extra_pods(self))
        groups = tuple(replace(group, is_queued=bool(self.queue), is_suspended=self.suspend) for group in groups)
        etcd = PodGroup(count=1, per_pod=COORDINATOR, key="rendezvous", role="etcd")
        return (*groups, etcd) if self.rendezvous_backend == "etcd" else groups


EXAMPLES_FOLDER = Path(__file__).resolve().parents[1] / "docs" / "recipes"
_YAML_BLOCK = re.compile(r"^```yaml\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def example_names() -> list[str]:
    """Return the names of all examples: jobs that are ready to run, each the first YAML block of its page."""
    return sorted(path.stem for path in EXAMPLES_FOLDER.glob("*.md") if path.stem != "README")


def yaml_blocks(name: str) -> list[str]:
    """Return the YAML blocks of an example's page: the job, then its variants for other platforms."""
    page = (EXAMPLES_FOLDER / f"{name}.md").read_text(encoding="utf-8")
    return [match["text"] for match in _YAML_BLOCK.finditer(page)]


def example_jobs(name: str) -> list[dict[str, Any]]:
    """Return the settings of an example's jobs. Raises ValueError for an unknown name."""
    # Imported here, because a stack without examples does not need it.
    import yaml

    if name not in example_names():
        similar = get_close_matches(name, example_names(), n=1)
        hint = f"did you mean {similar[0]}? Otherwise write" if similar else "write"
        raise ValueError(f"is not an example; {hint} one of {', '.join(example_names())}, or the keys of a job")
    jobs: list[dict[str, Any]] = yaml.safe_load(yaml_blocks(name)[0])
    return jobs
