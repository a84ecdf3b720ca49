"""Kind `indexed-job`: an Indexed Job whose pods find each other through a headless Service named after the job.

With `restarts` and a static rendezvous, the trainer's launcher restarts failed ranks in their pods (trainer/restarts).
In elastic jobs, torchrun restarts them. A pod then fails only if its host is lost, no restart is left, or a restart
would not help. In other jobs, a failed rank fails its pod, and the ranks of the other hosts fail because they lose
their connection to it. Evictions and lost nodes do not count as restarts. An exit code that a restart would repeat ends
the job immediately. An elastic job is complete when its minimum number of hosts has succeeded.

Each host has its own backoff (`backoffLimitPerIndex`): Kubernetes replaces its n-th failed pod after 10 s x 2^(n - 1),
at most 600 s. With `backoffLimit` alone, Kubernetes would count the failed pods of all hosts together: if eight hosts
failed at once, they would wait 600 s. Source: getRemainingTimePerIndex and newBackoffRecord in
https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/controller/job/backoff_utils.go
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infra.naming import job_selector
from workloads.kinds.kind import COMPLETION_INDEX, Kind

if TYPE_CHECKING:
    from pulumi import Output, ResourceOptions

    from workloads.objects import Placement
    from workloads.spec import JobSpec

IMMUTABLE_FIELDS = ("spec.backoffLimitPerIndex", "spec.podFailurePolicy", "spec.successPolicy")
"""Fields of a Job whose changes the API rejects, and for which Pulumi's provider does not replace the Job:
https://github.com/kubernetes/kubernetes/blob/v1.37.2/pkg/apis/batch/validation/validation.go"""


class IndexedJob(Kind):
    """Kind `indexed-job`."""

    name = "indexed-job"
    rendezvous = ("static", "c10d", "etcd")
    is_elastic = True
    restarts_in_place = True
    is_one_job = True
    reserved_variables = COMPLETION_INDEX
    pod_types = ("Job",)

    def label_suffixes(self, spec: JobSpec) -> tuple[str, ...]:
        return (f"-{spec.hosts - 1}",)

    def render(self, name: str, spec: JobSpec, placement: Placement, opts: ResourceOptions) -> Output[str]:
        """Create the Service and the Job."""
        from pulumi import ResourceOptions
        from pulumi_kubernetes.batch.v1 import Job, JobSpecArgs, SuccessPolicyArgs, SuccessPolicyRuleArgs
        from pulumi_kubernetes.core.v1 import Service, ServicePortArgs, ServiceSpecArgs

        from workloads.command import RENDEZVOUS_PORT, host_command, process_layout, restarts_in_place
        from workloads.objects import (
            CONTAINER,
            QUEUE_PATH,
            SKIP_AWAIT,
            WAIT_FOR_CREATION,
            Pod,
            failure_policy,
            metadata,
            pod_template,
            secondary_metadata,
        )

        Service(
            f"{name}-hosts",
            metadata=secondary_metadata(spec, placement, spec.name, SKIP_AWAIT),
            spec=ServiceSpecArgs(
                cluster_ip="None",
                publish_not_ready_addresses=True,
                selector=job_selector(spec.name),
                ports=[ServicePortArgs(name="rendezvous", port=RENDEZVOUS_PORT)],
            ),
            opts=opts,
        )
        layout = process_layout(spec)
        pod = Pod(command=host_command(spec, layout, placement.scheduling.nccl_environment), subdomain=spec.name)
        success = None
        if spec.elastic:
            success = SuccessPolicyArgs(rules=[SuccessPolicyRuleArgs(succeeded_count=spec.elastic.min_hosts)])
        job = Job(
            f"{name}-job",
            metadata=metadata(spec, placement, WAIT_FOR_CREATION),
            spec=JobSpecArgs(
                completion_mode="Indexed",
                completions=spec.hosts,
                parallelism=spec.hosts,
                backoff_limit=backoff_limit(spec),
                backoff_limit_per_index=spec.restarts,
                max_failed_indexes=layout.hosts - layout.min_hosts,
                active_deadline_seconds=spec.deadline_seconds,
                suspend=spec.suspend or None,
                pod_failure_policy=failure_policy(CONTAINER, launchers_restart=restarts_in_place(spec)),
                success_policy=success,
                template=pod_template(spec, placement, pod),
            ),
            opts=ResourceOptions.merge(opts, ResourceOptions(replace_on_changes=[QUEUE_PATH, *IMMUTABLE_FIELDS])),
        )
        return job.metadata.name


def backoff_limit(spec: JobSpec) -> int:
    """Return the number of failed pods that the Job allows: one for each host at each restart."""
    return spec.restarts * spec.hosts
