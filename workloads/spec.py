"""JobSpec: what a job is meant to do, as the stack's YAML gives it. It names nothing of Kubernetes. No Pulumi."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.hardware import Capacity, Demand, parse_cpu, parse_memory
from infra.scalars import Cpu, DnsLabel, FlagName, Image, Memory, Scalar, Section, Text, VariableName

JobKind = Literal["indexed-job"]
Recipe = Literal["digits", "imagenet"]


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


class JobSpec(Section):
    """One distributed training job."""

    name: DnsLabel = Field(examples=["digits"])
    """Name of the job, unique in the stack; its hosts are called `<name>-0`, `<name>-1` and so on."""
    kind: JobKind = "indexed-job"
    """How the job is run."""
    recipe: Recipe = Field(examples=["digits"])
    """What is trained: one of the trainer's recipes."""
    hosts: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Number of hosts that train together."""
    processes_per_host: Annotated[int, Field(ge=1, le=256)] = 1
    """Number of training processes on each host."""
    restarts: Annotated[int, Field(ge=0, le=1000)] = 1
    """How often the whole job may start again after a failure, from its last checkpoint; evictions do not count."""
    resources: ResourcesSpec = ResourcesSpec()
    """What each host has for itself."""
    shared_memory: Memory = "512Mi"
    """Size of /dev/shm on each host, a part of its memory."""
    flags: dict[FlagName, Scalar] = Field(default_factory=dict)
    """Flags of the trainer: `batch_size: 64` becomes `--batch-size=64`, `fake: true` becomes `--fake`."""
    environment: dict[VariableName, Text] = Field(default_factory=dict)
    """Environment variables of every training process."""
    image: Image | None = None
    """Image to run; by default the platform's."""
    deadline_seconds: Annotated[int, Field(ge=1)] | None = None
    """Seconds after which the job is ended, restarts included; by default never."""
    grace_seconds: Annotated[int, Field(ge=0, le=3600)] = 30
    """Seconds that a host which is told to stop has to write its last checkpoint."""

    @property
    def demand(self) -> Demand:
        """What the job asks of the nodes."""
        return Demand(hosts=self.hosts, per_host=self.resources.capacity)
