"""Kind `train-job`: a TrainJob (trainer.kubeflow.org/v1alpha1), and a TrainingRuntime with the template of its pods.

The runtime is in the job's namespace, because a ClusterTrainingRuntime would need cluster-wide permissions. Each change
creates a runtime with a new name, because a TrainJob's reference to its runtime is immutable. The operator creates a
JobSet from both and sets torchrun's addresses, ranks and counts. Restarts and failures are as in
workloads/kinds/jobset.py. Trainer v2 has no elastic jobs (https://github.com/kubeflow/trainer/issues/2903).
Source: github.com/kubeflow/trainer v2.3.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workloads.kinds.jobset import JobSetSpec, job_set, job_template
from workloads.kinds.kind import COMPLETION_INDEX, RANDOM_SUFFIX, Kind, Resource, Schema, any_job_is_ready, numbered

if TYPE_CHECKING:
    from pulumi import Input, Output, ResourceOptions

    from workloads.objects import Placement
    from workloads.spec import JobSpec

REPLICATED_JOB = "node"
"""Name that Trainer v2 requires for the replicated job that trains, and for its container."""
RUNTIME = "TrainingRuntime"
ANCESTOR_LABEL = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
"""Label of the Job in which the operator sets the number of hosts and torchrun's environment."""
RESOURCE = Resource(
    api_version="trainer.kubeflow.org/v1alpha1",
    kind="TrainJob",
    plural="trainjobs",
    complete="Complete",
    is_running=any_job_is_ready("jobsStatus"),
    hosts=lambda spec: int(spec.get("trainer", {}).get("numNodes", 1)),
)


@dataclass(frozen=True, kw_only=True)
class TorchPolicy(Schema):
    """Policy that makes the operator set torchrun's environment. It has no fields."""


@dataclass(frozen=True, kw_only=True)
class MLPolicy(Schema):
    """Number of hosts, and policy of the framework."""

    num_nodes: int
    torch: TorchPolicy | None


@dataclass(frozen=True, kw_only=True)
class JobSetTemplate(Schema):
    """Template of the JobSet that the operator creates."""

    spec: JobSetSpec


@dataclass(frozen=True, kw_only=True)
class TrainingRuntimeSpec(Schema):
    """Spec of the TrainingRuntime."""

    ml_policy: MLPolicy
    template: JobSetTemplate


@dataclass(frozen=True, kw_only=True)
class RuntimeRef(Schema):
    """Reference to the runtime of a job."""

    api_group: str
    kind: str
    name: Input[str]


@dataclass(frozen=True, kw_only=True)
class Trainer(Schema):
    """Values of the job that override its runtime's. The operator requires them."""

    num_nodes: int
    num_proc_per_node: int


@dataclass(frozen=True, kw_only=True)
class TrainJobSpec(Schema):
    """Spec of the TrainJob."""

    runtime_ref: RuntimeRef
    suspend: bool | None
    trainer: Trainer


class TrainJob(Kind):
    """Kind `train-job`."""

    name = "train-job"
    operators = frozenset({"trainer", "jobset"})
    resource = RESOURCE
    rendezvous = ("static",)
    isolates_slices = True
    operator_variables = ("PET_NNODES", "PET_NODE_RANK", "PET_NPROC_PER_NODE", "PET_RDZV_ENDPOINT")
    reserved_variables = COMPLETION_INDEX
    pod_types = (RESOURCE.kind, RUNTIME)

    def child_suffixes(self, spec: JobSpec) -> Iterator[str]:
        del spec
        return numbered(REPLICATED_JOB, 1)

    def label_suffixes(self, spec: JobSpec) -> tuple[str, ...]:
        return (f"-{REPLICATED_JOB}-0-{spec.hosts - 1}{RANDOM_SUFFIX}",)

    def render(self, name: str, spec: JobSpec, placement: Placement, opts: ResourceOptions) -> Output[str]:
        """Create the TrainingRuntime and the TrainJob."""
        from pulumi import ResourceOptions
        from pulumi_kubernetes.apiextensions import CustomResource

        from workloads.command import host_command, process_layout, uses_torchrun
        from workloads.objects import (
            SKIP_AWAIT,
            WAIT_FOR_CREATION,
            Pod,
            custom_job,
            metadata,
            name_of,
            secondary_metadata,
        )

        layout = process_layout(spec)
        pod = Pod(command=host_command(spec, layout, placement.scheduling.nccl_environment), container=REPLICATED_JOB)
        jobs = job_set(spec, layout, REPLICATED_JOB, job_template(spec, layout, placement, pod, ANCESTOR_LABEL))
        torch = TorchPolicy() if uses_torchrun(spec) else None
        runtime = CustomResource(
            f"{name}-runtime",
            api_version=RESOURCE.api_version,
            kind=RUNTIME,
            metadata=secondary_metadata(spec, placement, None, SKIP_AWAIT),
            spec=TrainingRuntimeSpec(
                ml_policy=MLPolicy(num_nodes=layout.hosts, torch=torch), template=JobSetTemplate(spec=jobs)
            ).plain(),
            opts=ResourceOptions.merge(opts, ResourceOptions(replace_on_changes=["spec"])),
        )
        reference = RuntimeRef(api_group=RESOURCE.api_version.partition("/")[0], kind=RUNTIME, name=name_of(runtime))
        return custom_job(
            f"{name}-job",
            RESOURCE,
            metadata(spec, placement, WAIT_FOR_CREATION),
            TrainJobSpec(
                runtime_ref=reference,
                suspend=spec.suspend or None,
                trainer=Trainer(num_nodes=layout.hosts, num_proc_per_node=layout.processes_per_host),
            ),
            opts,
        )
