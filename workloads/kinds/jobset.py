"""Kind `jobset`: a JobSet (jobset.x-k8s.io/v1alpha2) with one Indexed Job for each TPU slice, or one for all hosts.

A failed host restarts the whole set, at most `restarts` times. An exit code that a restart would repeat fails the set
immediately. Kubernetes replaces an evicted host. Neither the eviction nor code 75, with which other hosts then exit,
counts as a restart. Any other failure counts.
Source: sigs.k8s.io/jobset v0.12.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from infra.naming import job_labels
from workloads.kinds.kind import (
    COMPLETION_INDEX,
    RANDOM_SUFFIX,
    Kind,
    Object,
    Resource,
    Schema,
    any_job_is_ready,
    numbered,
)

if TYPE_CHECKING:
    from pulumi import Output, ResourceOptions
    from pulumi_kubernetes.batch.v1 import JobTemplateSpecArgs

    from workloads.command import ProcessLayout
    from workloads.objects import Placement, Pod
    from workloads.spec import JobSpec

REPLICATED_JOB = "worker"
"""Name of the set's replicated job, which has a child Job for each slice."""
FINAL_FAILURES = ("PodFailurePolicy", "DeadlineExceeded")
"""Reasons of a failed Job that also fail the set: an exit code that a restart would repeat, or a missed deadline."""
EXCLUSIVE_POOL_ANNOTATION = {"alpha.jobset.sigs.k8s.io/exclusive-topology": "cloud.google.com/gke-nodepool"}
"""Annotation that gives each slice a node pool of its own. Slices never share a pool, even in different jobs. Without
it, the scheduler may spread the hosts of one slice over several node pools:
https://jobset.sigs.k8s.io/docs/tasks/tpu_multislice/"""


def _hosts(spec: Object) -> int:
    return sum(
        each.get("replicas", 1) * each["template"]["spec"].get("completions", 1) for each in spec["replicatedJobs"]
    )


RESOURCE = Resource(
    api_version="jobset.x-k8s.io/v1alpha2",
    kind="JobSet",
    plural="jobsets",
    complete="Completed",
    is_running=any_job_is_ready("replicatedJobsStatus"),
    hosts=_hosts,
)


@dataclass(frozen=True, kw_only=True)
class FailureRule(Schema):
    """Action when a Job of the set fails for one of these reasons."""

    name: str
    action: str
    on_job_failure_reasons: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FailurePolicy(Schema):
    """Maximum number of restarts, and rules for failures that end the set at once."""

    max_restarts: int
    rules: tuple[FailureRule, ...]


@dataclass(frozen=True, kw_only=True)
class SuccessPolicy(Schema):
    """Condition under which the set is complete."""

    operator: str


@dataclass(frozen=True, kw_only=True)
class Network(Schema):
    """DNS names of the hosts."""

    publish_not_ready_addresses: bool


@dataclass(frozen=True, kw_only=True)
class ReplicatedJob(Schema):
    """Identical Jobs in the set."""

    name: str
    replicas: int
    template: JobTemplateSpecArgs


@dataclass(frozen=True, kw_only=True)
class JobSetSpec(Schema):
    """Spec of the JobSet."""

    failure_policy: FailurePolicy
    network: Network
    replicated_jobs: tuple[ReplicatedJob, ...]
    success_policy: SuccessPolicy
    suspend: bool | None = None


class JobSet(Kind):
    """Kind `jobset`."""

    name = "jobset"
    operators = frozenset({"jobset"})
    resource = RESOURCE
    rendezvous = ("static", "c10d")
    has_slices = True
    isolates_slices = True
    reserved_variables = COMPLETION_INDEX

    def first_host(self, job: str) -> str:
        return f"{job}-{REPLICATED_JOB}-0-0"

    def child_suffixes(self, spec: JobSpec) -> Iterator[str]:
        return numbered(REPLICATED_JOB, spec.slices)

    def label_suffixes(self, spec: JobSpec) -> tuple[str, ...]:
        return (f"-{REPLICATED_JOB}-{spec.slices - 1}-{spec.hosts // spec.slices - 1}{RANDOM_SUFFIX}",)

    def render(self, name: str, spec: JobSpec, placement: Placement, opts: ResourceOptions) -> Output[str]:
        """Create the JobSet."""
        from workloads.command import host_command, process_layout
        from workloads.objects import WAIT_FOR_CREATION, Pod, custom_job, metadata

        layout = process_layout(spec)
        pod = Pod(command=host_command(spec, layout, placement.scheduling.nccl_environment))
        template = job_template(spec, layout, placement, pod)
        return custom_job(
            f"{name}-job",
            RESOURCE,
            metadata(spec, placement, WAIT_FOR_CREATION),
            job_set(spec, layout, REPLICATED_JOB, template, suspend=spec.suspend or None),
            opts,
        )


def job_set(
    spec: JobSpec,
    layout: ProcessLayout,
    replicated_job: str,
    template: JobTemplateSpecArgs,
    *,
    suspend: bool | None = None,
) -> JobSetSpec:
    """Return a set with one Job per slice. The set is complete when all Jobs are, and restarts when one Job fails."""
    final = FailureRule(name="final", action="FailJobSet", on_job_failure_reasons=FINAL_FAILURES)
    return JobSetSpec(
        failure_policy=FailurePolicy(max_restarts=spec.restarts, rules=(final,)),
        network=Network(publish_not_ready_addresses=True),
        replicated_jobs=(ReplicatedJob(name=replicated_job, replicas=layout.slices, template=template),),
        success_policy=SuccessPolicy(operator="All"),
        suspend=suspend,
    )


def job_template(
    spec: JobSpec,
    layout: ProcessLayout,
    placement: Placement,
    pod: Pod,
    labels: dict[str, str] | None = None,
) -> JobTemplateSpecArgs:
    """Return the template of a slice's Job. The first failed host fails the Job, and then the set may restart."""
    from pulumi_kubernetes.batch.v1 import JobSpecArgs, JobTemplateSpecArgs
    from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

    from workloads.objects import CONTAINER, failure_policy, pod_template

    has_own_pool = spec.tpu is not None and spec.tpu.hosts > 1
    return JobTemplateSpecArgs(
        metadata=ObjectMetaArgs(
            labels={**job_labels(spec.name, spec.recipe), **(labels or {})},
            annotations=EXCLUSIVE_POOL_ANNOTATION if has_own_pool else None,
        ),
        spec=JobSpecArgs(
            completion_mode="Indexed",
            completions=layout.hosts_per_slice,
            parallelism=layout.hosts_per_slice,
            backoff_limit=0,
            active_deadline_seconds=spec.deadline_seconds,
            pod_failure_policy=failure_policy(pod.container or CONTAINER, peers_leave=True),
            template=pod_template(spec, placement, pod),
        ),
    )
