"""Kind `indexed-job`: an Indexed Job whose pods find each other through a headless Service of the job's name."""

from __future__ import annotations

import pulumi
from pulumi_kubernetes.batch.v1 import (
    Job,
    JobSpecArgs,
    PodFailurePolicyArgs,
    PodFailurePolicyOnExitCodesRequirementArgs,
    PodFailurePolicyOnPodConditionsPatternArgs,
    PodFailurePolicyRuleArgs,
)
from pulumi_kubernetes.core.v1 import Service, ServicePortArgs, ServiceSpecArgs
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from infra.naming import job_labels, job_selector
from workloads.command import RENDEZVOUS_PORT
from workloads.pod import CONTAINER, Placement, pod_template
from workloads.spec import JobSpec

FINAL_EXIT_CODES = (65, 66, 78)
"""Exit codes after which a restart would end the same way: diverged, data error, bad configuration (sysexits)."""

UNAWAITED = {"pulumi.com/skipAwait": "true"}
"""The Service has no addresses before the job's pods run."""
CREATED_IS_READY = {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"}
"""The Job ends when training does, which no update waits for. Its deletion is awaited, as it would not be with
`skipAwait` (https://github.com/pulumi/pulumi-kubernetes/issues/3154): a job that takes its place has the same name."""


def backoff_limit(spec: JobSpec) -> int:
    """Failed pods that the Job bears: when one host fails the others do too, so a restart costs one pod a host."""
    return spec.restarts * spec.hosts


def render(name: str, spec: JobSpec, placement: Placement, opts: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """Create the Service and the Job; returns the Job's name."""
    Service(
        f"{name}-hosts",
        metadata=_metadata(spec, placement, UNAWAITED),
        spec=ServiceSpecArgs(
            cluster_ip="None",
            publish_not_ready_addresses=True,
            selector=job_selector(spec.name),
            ports=[ServicePortArgs(name="rendezvous", port=RENDEZVOUS_PORT)],
        ),
        opts=opts,
    )
    job = Job(
        f"{name}-job",
        metadata=_metadata(spec, placement, CREATED_IS_READY),
        spec=JobSpecArgs(
            completion_mode="Indexed",
            completions=spec.hosts,
            parallelism=spec.hosts,
            backoff_limit=backoff_limit(spec),
            active_deadline_seconds=spec.deadline_seconds,
            pod_failure_policy=_failure_policy(),
            template=pod_template(spec, placement),
        ),
        opts=opts,
    )
    return job.metadata.name


def _metadata(spec: JobSpec, placement: Placement, annotations: dict[str, str]) -> ObjectMetaArgs:
    return ObjectMetaArgs(
        name=spec.name,
        namespace=placement.namespace,
        labels=job_labels(spec.name, spec.recipe),
        annotations=annotations,
    )


def _failure_policy() -> PodFailurePolicyArgs:
    """Disruptions do not count towards the limit, and some exit codes end the job at once."""
    disrupted = PodFailurePolicyOnPodConditionsPatternArgs(type="DisruptionTarget", status="True")
    final = PodFailurePolicyOnExitCodesRequirementArgs(
        container_name=CONTAINER, operator="In", values=list(FINAL_EXIT_CODES)
    )
    return PodFailurePolicyArgs(
        rules=[
            PodFailurePolicyRuleArgs(action="Ignore", on_pod_conditions=[disrupted]),
            PodFailurePolicyRuleArgs(action="FailJob", on_exit_codes=final),
        ]
    )
