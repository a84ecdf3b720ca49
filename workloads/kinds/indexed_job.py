"""Kind `indexed-job`: an Indexed Job whose pods find each other through a headless Service of the job's name.

Evictions and lost nodes do not count as restarts, and the final exit codes end the job at once. An elastic job is
complete when as many hosts as train at least are: hosts that come back after the end have nothing to join.
"""

from __future__ import annotations

import pulumi
from pulumi_kubernetes.batch.v1 import Job, JobSpecArgs, SuccessPolicyArgs, SuccessPolicyRuleArgs
from pulumi_kubernetes.core.v1 import Service, ServicePortArgs, ServiceSpecArgs

from infra.naming import job_selector
from workloads.command import RENDEZVOUS_PORT, host_command
from workloads.kinds.parts import CREATED_IS_READY, QUEUE_PATH, UNAWAITED, companion, failure_policy, metadata
from workloads.pod import CONTAINER, Placement, Pod, pod_template
from workloads.spec import JobSpec
from workloads.topology import topology


def backoff_limit(spec: JobSpec) -> int:
    """Failed pods that the Job bears: when one host fails the others do too, so a restart costs one pod a host."""
    return spec.restarts * spec.hosts


def render(name: str, spec: JobSpec, placement: Placement, opts: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """Create the Service and the Job; returns the Job's name."""
    Service(
        f"{name}-hosts",
        metadata=companion(spec, placement, spec.name, UNAWAITED),
        spec=ServiceSpecArgs(
            cluster_ip="None",
            publish_not_ready_addresses=True,
            selector=job_selector(spec.name),
            ports=[ServicePortArgs(name="rendezvous", port=RENDEZVOUS_PORT)],
        ),
        opts=opts,
    )
    pod = Pod(command=host_command(spec, topology(spec), placement.profile), subdomain=spec.name)
    job = Job(
        f"{name}-job",
        metadata=metadata(spec, placement, CREATED_IS_READY),
        spec=JobSpecArgs(
            completion_mode="Indexed",
            completions=spec.hosts,
            parallelism=spec.hosts,
            backoff_limit=backoff_limit(spec),
            active_deadline_seconds=spec.deadline_seconds,
            suspend=spec.suspend or None,
            pod_failure_policy=failure_policy(CONTAINER),
            success_policy=_success(spec),
            template=pod_template(spec, placement, pod),
        ),
        opts=pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(replace_on_changes=[QUEUE_PATH])),
    )
    return job.metadata.name


def _success(spec: JobSpec) -> SuccessPolicyArgs | None:
    if spec.elastic is None:
        return None
    return SuccessPolicyArgs(rules=[SuccessPolicyRuleArgs(succeeded_count=spec.elastic.min_hosts)])
