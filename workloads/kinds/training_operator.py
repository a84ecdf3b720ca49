"""Kinds `pytorch-job` and `mx-job` of Kubeflow's training operator: PyTorchJob and MXJob (kubeflow.org/v1).

With `restarts: 0` the operator recreates no pod. With any other value it recreates a pod whose exit code is 128 or more
(`ExitCode`): after a signal, an out-of-memory kill, a deletion or an eviction. `trainer.launch` adds 128 to its codes
that mean "run the job again". Any other nonzero exit code ends the job. The operator does not count the pods that it
recreates, so only `deadline_seconds` limits their number. The operator checks the deadline only when a pod changes
(https://github.com/kubeflow/trainer/issues/3358), so each pod has the same deadline. Gang scheduling has an effect only
if the operator runs with a gang scheduler.

Sources: the CRDs of training-operator v1.9.4 and v1.8.1; github.com/kubeflow/training-operator v1.9.4,
pkg/controller.v1/pytorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from infra.hardware import PodGroup
from settings.problem import Problem
from workloads.kinds.kind import COORDINATOR, Kind, Resource, Schema, condition_is_true, numbered, replicas

if TYPE_CHECKING:
    from pulumi import Output, ResourceOptions
    from pulumi_kubernetes.core.v1 import PodTemplateSpecArgs

    from workloads.objects import Placement
    from workloads.spec import JobSpec

INDEX_LABEL = "training.kubeflow.org/replica-index"
"""Label of a pod with its index in its role, in the jobs of Kubeflow's operators."""


@dataclass(frozen=True, kw_only=True)
class SchedulingPolicy(Schema):
    """Gang scheduling."""

    min_available: int
    """Number of pods that start together or not at all."""
    priority_class: str | None
    """PriorityClass of these pods."""


@dataclass(frozen=True, kw_only=True)
class RunPolicy(Schema):
    """Limits of the job, and the pods that the operator deletes at its end."""

    active_deadline_seconds: int | None
    backoff_limit: int
    clean_pod_policy: str
    """With `Running`, the operator deletes only pods that still run when the job ends. The logs of the others stay."""
    scheduling_policy: SchedulingPolicy
    suspend: bool | None


@dataclass(frozen=True, kw_only=True)
class Replica(Schema):
    """Identical pods of the job."""

    replicas: int
    restart_policy: str
    template: PodTemplateSpecArgs


def run_policy(spec: JobSpec, min_pods: int) -> RunPolicy:
    """Return the run policy of a job that needs at least `min_pods` pods to start."""
    return RunPolicy(
        active_deadline_seconds=spec.deadline_seconds,
        backoff_limit=spec.restarts,
        clean_pod_policy="Running",
        scheduling_policy=SchedulingPolicy(min_available=min_pods, priority_class=spec.priority_class),
        suspend=spec.suspend or None,
    )


def replica(spec: JobSpec, count: int, template: PodTemplateSpecArgs) -> Replica:
    """Return `count` pods of the job."""
    return Replica(replicas=count, restart_policy="ExitCode" if spec.restarts else "Never", template=template)


PYTORCH_CONTAINER = "pytorch"
"""Name of the container that the operator expects."""
PYTORCH_JOB = Resource(
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
    """Values that the operator passes to torchrun in variables such as PET_NNODES and PET_RDZV_BACKEND."""

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
    """Spec of the PyTorchJob."""

    elastic_policy: ElasticPolicy | None
    nproc_per_node: str
    pytorch_replica_specs: dict[str, Replica]
    run_policy: RunPolicy


class PyTorchJob(Kind):
    """Kind `pytorch-job`. The operator sets torchrun's addresses, ranks and counts.

    Host 0 is the Master, and the other hosts are Workers. An elastic job has only Workers.
    """

    name = "pytorch-job"
    operators = frozenset({"training-operator"})
    resource = PYTORCH_JOB
    index_label = INDEX_LABEL
    rendezvous = ("static", "c10d")
    is_elastic = True
    no_tpu = "its pods have no completion index, which tells a TPU host its place in the slice"
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
            yield Problem("job.rendezvous.c10d_without_elastic", ("rendezvous",), message, spec.rendezvous)

    def render(self, name: str, spec: JobSpec, placement: Placement, opts: ResourceOptions) -> Output[str]:
        """Create the PyTorchJob."""
        from workloads.command import host_command, process_layout
        from workloads.objects import WAIT_FOR_CREATION, Pod, custom_job, metadata, pod_template

        layout = process_layout(spec)
        pod = Pod(
            command=host_command(spec, layout, placement.scheduling.nccl_environment),
            container=PYTORCH_CONTAINER,
            restart_policy=None,
            deadline_seconds=spec.deadline_seconds,
        )
        template = pod_template(spec, placement, pod)
        counts = {"Worker": layout.hosts} if spec.elastic else {"Master": 1, "Worker": layout.hosts - 1}
        return custom_job(
            f"{name}-job",
            PYTORCH_JOB,
            metadata(spec, placement, WAIT_FOR_CREATION),
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


MXNET_CONTAINER = "mxnet"
"""Name of the container that the operator expects."""
MXNET = "MXNet"
SCHEDULERS = 1
MX_JOB = Resource(
    api_version="kubeflow.org/v1",
    kind="MXJob",
    plural="mxjobs",
    is_running=condition_is_true("Running"),
    suspend=("runPolicy", "suspend"),
    hosts=replicas("mxReplicaSpecs", "Worker"),
)


@dataclass(frozen=True, kw_only=True)
class MXJobSpec(Schema):
    """Spec of the MXJob."""

    job_mode: str
    mx_replica_specs: dict[str, Replica]
    run_policy: RunPolicy


class MXJob(Kind):
    """Kind `mx-job`: a scheduler, parameter servers and workers, all running one script.

    The operator sets each pod's role and the scheduler's address (`DMLC_*`). `import mxnet` turns the pod into a
    scheduler or server. The job is complete when the scheduler is. The last release with MXJob is training-operator
    v1.8 (https://github.com/kubeflow/trainer/issues/1996).
    """

    name = "mx-job"
    operators = frozenset({"training-operator-mxjob"})
    resource = MX_JOB
    index_label = INDEX_LABEL
    no_tpu = "MXNet has no TPU device"
    runs_recipes = False
    # https://github.com/kubernetes-sigs/kueue/pull/4077
    is_queueable = False
    own_keys = ("parameter_servers",)
    image_software = MXNET
    one_process_per_host = True
    recreates_pods = True
    retryable_offset = 128
    operator_variables = (
        *("DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_SERVER", "DMLC_NUM_WORKER", "DMLC_ROLE"),
        *("DMLC_USE_KUBERNETES", "DMLC_WORKER_ID", "MX_CONFIG"),
    )

    def extra_pods(self, spec: JobSpec) -> tuple[PodGroup, ...]:
        capacity, key = spec.resources.capacity, "parameter_servers"
        role = "parameter server" if spec.parameter_servers == 1 else "parameter servers"
        return (
            PodGroup(count=spec.parameter_servers, per_pod=capacity, key=key, role=role),
            PodGroup(count=SCHEDULERS, per_pod=COORDINATOR, key="kind", role="scheduler"),
        )

    def child_suffixes(self, spec: JobSpec) -> Iterator[str]:
        yield "-scheduler-0"
        yield from numbered("server", spec.parameter_servers)
        yield from numbered("worker", spec.hosts)

    def problems(self, spec: JobSpec) -> Iterator[Problem]:
        if spec.processes_per_host > 1 and not spec.tpu:
            message = "a worker of an mx-job is one process; remove this, and raise `hosts` for more workers"
            yield Problem(
                "job.processes_per_host.several_in_mx_job", ("processes_per_host",), message, spec.processes_per_host
            )

    def render(self, name: str, spec: JobSpec, placement: Placement, opts: ResourceOptions) -> Output[str]:
        """Create the MXJob."""
        from workloads.command import host_command, process_layout
        from workloads.objects import WAIT_FOR_CREATION, Pod, custom_job, metadata, pod_template

        command = host_command(spec, process_layout(spec))
        counts = {"scheduler": SCHEDULERS, "server": spec.parameter_servers, "worker": spec.hosts}
        mxnet = Pod(
            command=command,
            container=MXNET_CONTAINER,
            restart_policy=None,
            deadline_seconds=spec.deadline_seconds,
        )
        capacities = {"scheduler": COORDINATOR}
        pods = {role: replace(mxnet, role=role, capacity=capacities.get(role)) for role in counts}
        return custom_job(
            f"{name}-job",
            MX_JOB,
            metadata(spec, placement, WAIT_FOR_CREATION),
            MXJobSpec(
                job_mode="MXTrain",
                mx_replica_specs={
                    role.capitalize(): replica(spec, count, pod_template(spec, placement, pods[role]))
                    for role, count in counts.items()
                },
                run_policy=run_policy(spec, sum(counts.values())),
            ),
            opts,
        )
