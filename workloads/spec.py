"""JobSpec: what a job is meant to do, as the stack's YAML gives it. It names nothing of Kubernetes. No Pulumi."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from infra.hardware import Capacity, PodGroup, gpus, parse_cpu, parse_memory
from infra.hardware.accelerators import is_accelerator, what_is_one
from infra.hardware.tpus import GENERATIONS, TpuSlice, is_tpu, tpu_slice
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
    matched,
)
from workloads.kinds import KINDS
from workloads.kinds.kind import COORDINATOR, Rendezvous
from workloads.recipes import recipe_names

JobKind = Literal["indexed-job", "pytorch-job", "mpi-job", "mx-job", "jobset", "train-job"]
Recipe = Literal["digits", "imagenet"]
Computation = Literal["torch", "xla"]

XLA_IMAGE = "xla"
"""Trainyard's own image with PyTorch/XLA, by the name that infra.image.builtin_images gives it."""
CUDA_12_IMAGE = "cuda12"
"""The same with torch on CUDA 12."""
ETCD_IMAGE = "etcd"
"""The same with etcd."""


def _accelerator(value: str) -> str:
    if not is_accelerator(value):
        raise Invalid("accelerator", what_is_one(value))
    if is_tpu(value) and value not in GENERATIONS:
        # An accelerator type is right or wrong by itself.
        tpu_slice(value)
    return value


Accelerator = Annotated[str, AfterValidator(_accelerator)]
"""A GPU by GKE's name, a TPU generation, or a TPU accelerator type."""


ClassName = Annotated[
    str,
    matched(
        "priority_class",
        re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"),
        "must be a DNS subdomain: at most 253 small letters, digits, '-' and '.'; write for example 'gpu.high'",
        limit=253,
    ),
]
"""Name of a PriorityClass."""


class ResourcesSpec(Section):
    """What each host of a job has for itself: it gets all of it and no more."""

    cpu: Cpu = "1"
    """CPUs of each host, such as `2`, `0.5` or `500m`."""
    memory: Memory = "2Gi"
    """Memory of each host, its shared memory included, such as `512Mi` or `2Gi`."""

    @property
    def capacity(self) -> Capacity:
        """The same as numbers."""
        return Capacity(millicores=parse_cpu(self.cpu), memory=parse_memory(self.memory))


class ElasticSpec(Section):
    """The numbers of hosts between which a job may shrink and grow while it trains."""

    min_hosts: Annotated[int, Field(ge=1, le=10_000)] = Field(examples=[1])
    """Fewest hosts that go on training; with fewer the rest wait for others to come."""
    max_hosts: Annotated[int, Field(ge=1, le=10_000)] = Field(examples=[3])
    """Most hosts; so many are started."""


def slice_in(values: dict[str, Any]) -> TpuSlice | None:
    """The TPU slice that the fields of a job mean; None where they mean no TPU."""
    accelerator = values.get("accelerator")
    return tpu_slice(accelerator, values.get("topology")) if accelerator and is_tpu(accelerator) else None


def default_hosts(values: dict[str, Any]) -> int:
    """Hosts of a job that does not say how many."""
    if found := slice_in(values):
        return found.hosts * int(values["slices"])
    elastic: ElasticSpec | None = values["elastic"]
    return elastic.max_hosts if elastic else 1


def _default_processes(values: dict[str, Any]) -> int:
    """A process for each GPU; one for all the chips of a TPU host, and where each host starts its program once."""
    is_one = slice_in(values) or KINDS[values["kind"]].one_process_per_host or not values["torchrun"]
    return 1 if is_one else int(values["accelerators_per_host"] or 1)


class JobSpec(Section):
    """One distributed training job."""

    name: DnsLabel = Field(examples=["digits"])
    """Name of the job, unique in the stack and the beginning of its hosts' names."""
    kind: JobKind = "indexed-job"
    """How the job is run: Kubernetes' own Indexed Job, or a resource of an operator, which the stack then installs."""
    recipe: Recipe | None = Field(default=None, examples=["digits"])
    """What is trained: one of the trainer's recipes. A job has this or `script`."""
    script: Annotated[str, Field(min_length=1)] | None = Field(default=None, examples=["./train.py"])
    """Python file to run in place of a recipe: under torchrun, or started by mpirun (`mpi-job`), or by itself
    (`mx-job`, TPUs). `./train.py` is a file of this checkout, which goes into the pods as it is; any other path is one
    in the image, or under /bucket where the platform's bucket is a folder of the pods (`local`, a claim)."""
    args: tuple[Text, ...] = ()
    """Arguments of the script, each a word."""
    torchrun: bool = True
    """Starts the script under torchrun; `false` starts it by itself, once on each host, as work that is no training
    needs it: its image need not have torch."""
    accelerator: Accelerator | None = Field(default=None, examples=["nvidia-l4"])
    """What each host computes on: a GPU by GKE's name, such as `nvidia-tesla-v100`, or a TPU by its accelerator type,
    such as `v4-32`, or by its generation (`v5e`) together with `topology`; by default its CPUs."""
    runtime: Computation | None = None
    """What computes: PyTorch by itself (`torch`), or PyTorch/XLA (`xla`), which has an image of its own; by default XLA
    on TPUs and PyTorch elsewhere."""
    topology: str | None = Field(default=None, validate_default=True, examples=["2x2x4"])
    """Chips of a TPU slice along each axis; by default the most compact shape of the accelerator type."""
    slices: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of TPU slices that train together; more than one needs the kind `jobset`."""
    accelerators_per_host: Annotated[int, Field(ge=1, le=16)] | None = None
    """Number of GPUs of each host; 1 by default where `accelerator` is a GPU."""
    elastic: ElasticSpec | None = Field(default=None, examples=["{min_hosts: 1, max_hosts: 3}"])
    """Lets hosts leave and join while the job trains (`indexed-job`, `pytorch-job`); by default all train or none."""
    hosts: Annotated[int, Field(ge=1, le=10_000)] = Field(
        default_factory=default_hosts, json_schema_extra={"default": 1}
    )
    """Number of hosts that train together; for TPUs and elastic jobs it follows from what they say."""
    parameter_servers: Annotated[int, Field(ge=1, le=1000)] = 1
    """Number of parameter servers of an `mx-job`, beside its hosts and a scheduler."""
    processes_per_host: Annotated[int, Field(ge=1, le=256)] = Field(
        default_factory=_default_processes, json_schema_extra={"default": 1}
    )
    """Number of training processes on each host; by default one for each GPU, and one on a TPU host, without any, with
    `torchrun: false` and in an `mx-job`. On a TPU host it is one, which drives all chips, or one for each chip."""
    rendezvous: Rendezvous | None = None
    """How torchrun's hosts meet: `static` (rank = index of the host), `c10d` (at host 0), or `etcd` (in an etcd that
    the job gets for itself); by default static, and c10d for an elastic job and an `mpi-job`."""
    restarts: Annotated[int, Field(ge=0, le=1000)] = 1
    """How often the whole job may start again after a failure, from its last checkpoint; evictions do not count where
    the kind can tell them apart (docs/kinds.md)."""
    resources: ResourcesSpec = ResourcesSpec()
    """What each host has for itself."""
    shared_memory: Memory = "512Mi"
    """Size of /dev/shm on each host, a part of its memory."""
    flags: dict[FlagName, Scalar] = Field(default_factory=dict)
    """Flags of the trainer: `batch_size: 64` becomes `--batch-size=64`, `amp: true` becomes `--amp`;
    all are in a table below."""
    environment: dict[VariableName, Text] = Field(default_factory=dict)
    """Environment variables of every training process."""
    secrets: dict[VariableName, SecretName] = Field(default_factory=dict)
    """Environment variables with secret values: `WANDB_API_KEY: wandb` takes what `pulumi config set --secret
    secrets:wandb` has stored."""
    image: Image | None = None
    """Image to run; by default the platform's, of the job's `runtime`. Where it is built, `cuda12` is the trainer's
    with torch 2.10 on CUDA 12.8, for drivers older than CUDA 13's; jobs on V100s, which CUDA 13 left, have it by
    themselves. Platform `local` reaches no registry, where any other image is waited for in vain, and builds those of
    Trainyard's own that jobs name: `horovod`, TensorFlow and MXNet with Horovod over OpenMPI (images/horovod), and
    `stores`, an object store for recipes (images/stores)."""
    min_bandwidth_gbps: Annotated[float, Field(gt=0, le=100_000)] | None = Field(default=None, examples=[50])
    """Checks every pair of hosts before training: the slowest link must carry so many gigabits a second one way, or the
    job fails at once; by default nothing is checked."""
    queue: DnsLabel | None = None
    """Queue that the job waits in until what the nodes have left is enough for all of its hosts: Kueue's LocalQueue of
    that name, which the stack makes on `local`, GKE and EKS (docs/operators.md); by default the job starts at once."""
    priority_class: ClassName | None = None
    """Kubernetes PriorityClass of the hosts, which must be in the cluster (`kubectl create priorityclass`); by default
    the cluster's own default."""
    suspend: bool = False
    """Makes the job without starting it, or stops its hosts; `false` starts it (again), from its last checkpoint."""
    interactive: bool = False
    """Starts the same hosts idle, addresses, ranks and counts in their environment, for training by hand."""
    deadline_seconds: Annotated[int, Field(ge=1, le=31_536_000)] | None = Field(default=None, examples=[86400])
    """Seconds after which the job is ended, restarts included, but that a `jobset` and a `train-job` begin to count
    anew at each; by default never."""
    grace_seconds: Annotated[int, Field(ge=0, le=3600)] = 30
    """Seconds that a host which is told to stop has to write its last checkpoint."""

    @field_validator("recipe", mode="before")
    @classmethod
    def _no_whole_job(cls, value: object) -> object:
        if value in recipe_names() and value not in get_args(Recipe):
            raise Invalid(
                "recipe_of_docs",
                f"is a whole job of docs/recipes: write `- {value}` in the place of this job's keys; "
                f"a recipe of the trainer is one of {', '.join(get_args(Recipe))}",
            )
        return value

    @field_validator("topology")
    @classmethod
    def _topology_fits(cls, value: str | None, info: ValidationInfo) -> str | None:
        accelerator = info.data.get("accelerator")
        if accelerator and is_tpu(accelerator):
            tpu_slice(accelerator, value)
        elif value is not None and "accelerator" in info.data:
            raise Invalid("topology_without_tpu", "is of TPUs only; remove it, or write for example `accelerator: v4`")
        return value

    @property
    def tpu(self) -> TpuSlice | None:
        """The TPU slice that the job asks for; None without TPUs."""
        return slice_in({"accelerator": self.accelerator, "topology": self.topology})

    @property
    def on_xla(self) -> bool:
        """Whether it computes through PyTorch/XLA."""
        return self.tpu is not None if self.runtime is None else self.runtime == "xla"

    @property
    def image_name(self) -> str | None:
        """The image that the job names, or that its runtime has; None for the platform's own."""
        if self.image or self.on_xla:
            return self.image or XLA_IMAGE
        return CUDA_12_IMAGE if self.accelerator in gpus.WITHOUT_CUDA_13 else None

    @property
    def image_names(self) -> tuple[str, ...]:
        """The images of all its pods, by name, but for the platform's own."""
        etcd = ETCD_IMAGE if self.rendezvous_backend == "etcd" else None
        return tuple(filter(None, (self.image_name, etcd)))

    @property
    def accelerators(self) -> int:
        """GPUs or TPU chips of each host."""
        if self.tpu:
            return self.tpu.chips_per_host
        return (self.accelerators_per_host or 1) if self.accelerator else 0

    @property
    def rendezvous_backend(self) -> Rendezvous:
        """Rendezvous backend of its hosts: the job's own, else its default."""
        return self.rendezvous or ("c10d" if self.elastic else KINDS[self.kind].default_rendezvous)

    @property
    def pod_groups(self) -> tuple[PodGroup, ...]:
        """Its pods and what they request: its hosts, then its other pods."""
        key = "elastic.max_hosts" if self.elastic else "hosts"
        hosts = PodGroup(
            count=self.hosts,
            per_pod=self.resources.capacity,
            accelerator=self.accelerator,
            topology=self.topology,
            accelerators=self.accelerators,
            key=key,
        )
        groups = (hosts, *KINDS[self.kind].extra_pods(self))
        groups = tuple(replace(each, is_queued=bool(self.queue), is_suspended=self.suspend) for each in groups)
        etcd = PodGroup(count=1, per_pod=COORDINATOR, key="rendezvous", role="etcd")
        return (*groups, etcd) if self.rendezvous_backend == "etcd" else groups
