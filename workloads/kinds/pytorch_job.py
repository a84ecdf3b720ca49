"""Kind `pytorch-job`: a PyTorchJob (kubeflow.org/v1). The operator sets all of torchrun's addresses, ranks and counts.

Host 0 is the Master and the others are Workers. An elastic job has only Workers. Restarts: workloads/kinds/
training_operator.py. Source: github.com/kubeflow/training-operator v1.9.4, pkg/controller.v1/pytorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from settings.problem import Problem
from workloads.kinds.kind import NO_INDEX, Kind, Resource, Schema, condition_is_true, numbered, replicas
from workloads.kinds.training_operator import INDEX_LABEL, Replica, RunPolicy, replica, run_policy

if TYPE_CHECKING:
    from pulumi import Output, ResourceOptions

    from workloads.pod import Placement
    from workloads.spec import JobSpec

CONTAINER = "pytorch"
"""Name of the container that the operator expects."""
RESOURCE = Resource(
    api_version="kubeflow.org/v1",
    kind="PyTorchJob",
    plural="pytorchjobs",
    is_running=condition_is_true("Running"),
    suspend=("runPolicy", "suspend"),
    hosts=replicas("pytorchReplicaSpecs", "Master", "Worker"),
)


@dataclass(frozen=True, kw_only=True)
class RendezvousOption(Schema):
    """Option of torchrun's rendezvous."""

    key: str
    value: str


@dataclass(frozen=True, kw_only=True)
class ElasticPolicy(Schema):
    """Values that the operator passes to torchrun as --nnodes and --rdzv-*."""

    min_replicas: int
    max_replicas: int
    max_restarts: int
    rdzv_backend: str
    rdzv_host: str
    rdzv_port: int
    rdzv_id: str
    rdzv_conf: tuple[RendezvousOption, ...]


@dataclass(frozen=True, kw_only=True)
class PyTorchJobSpec(Schema):
    """The job."""

    elastic_policy: ElasticPolicy | None
    nproc_per_node: str
    pytorch_replica_specs: dict[str, Replica]
    run_policy: RunPolicy


class PyTorchJob(Kind):
    """Kind `pytorch-job`."""

    name = "pytorch-job"
    operators = frozenset({"training-operator"})
    resource = RESOURCE
    index_label = INDEX_LABEL
    rendezvous = ("static", "c10d")
    is_elastic = True
    no_tpu = NO_INDEX
    recreates_pods = True
    retryable_offset = 128
    operator_variables = (
        *("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_RDZV_ENDPOINT"),
    )
    elastic_variables = ("PET_RDZV_BACKEND", "PET_RDZV_CONF", "PET_RDZV_ID", "PET_MAX_RESTARTS")

    def child_suffixes(self, spec: JobSpec) -> Iterator[str]:
        yield "-master-0"
        yield from numbered("worker", spec.hosts)

    def problems(self, spec: JobSpec) -> Iterator[Problem]:
        from workloads.command import uses_torchrun

        if spec.rendezvous == "c10d" and spec.elastic is None and uses_torchrun(spec):
            message = "the operator sets a static rendezvous unless the job is elastic; add `elastic`, or remove this"
            yield Problem("job.rendezvous.operator_static", ("rendezvous",), message, spec.rendezvous)

    def render(self, name: str, spec: JobSpec, placement: Placement, opts: ResourceOptions) -> Output[str]:
        """Create the PyTorchJob."""
        from workloads.command import host_command, process_layout
        from workloads.objects import CREATED_IS_READY, custom_job, metadata
        from workloads.pod import Pod, pod_template

        layout = process_layout(spec)
        pod = Pod(
            command=host_command(spec, layout, placement.nccl_environment), container=CONTAINER, restart_policy=None
        )
        template = pod_template(spec, placement, pod)
        counts = {"Worker": layout.hosts} if spec.elastic else {"Master": 1, "Worker": layout.hosts - 1}
        return custom_job(
            f"{name}-job",
            RESOURCE,
            metadata(spec, placement, CREATED_IS_READY),
            PyTorchJobSpec(
                elastic_policy=_elastic_policy(spec),
                nproc_per_node=str(layout.processes_per_host),
                pytorch_replica_specs={role: replica(spec, count, template) for role, count in counts.items() if count},
                run_policy=run_policy(spec, layout.min_hosts),
            ),
            opts,
        )


def _elastic_policy(spec: JobSpec) -> ElasticPolicy | None:
    from workloads.command import RENDEZVOUS_PORT, rendezvous_options

    if spec.elastic is None:
        return None
    return ElasticPolicy(
        min_replicas=spec.elastic.min_hosts,
        max_replicas=spec.elastic.max_hosts,
        max_restarts=spec.restarts,
        rdzv_backend=spec.rendezvous_backend,
        rdzv_host=f"{spec.name}-worker-0",
        rdzv_port=RENDEZVOUS_PORT,
        rdzv_id=spec.name,
        rdzv_conf=tuple(RendezvousOption(key=key, value=value) for key, value in rendezvous_options(spec).items()),
    )
