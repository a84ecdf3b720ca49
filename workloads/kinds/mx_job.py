"""Kind `mx-job`: an MXJob (kubeflow.org/v1) with a scheduler, parameter servers and workers, all running one script.

The operator sets each pod's role and the scheduler's address (`DMLC_*`), and `import mxnet` turns the pod into a
scheduler or server. The job is complete when the scheduler is. The last release with MXJob is training-operator v1.8
(https://github.com/kubeflow/trainer/issues/1996). Restarts: workloads/kinds/training_operator.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from infra.hardware import PodGroup
from settings.problem import Problem
from workloads.kinds.kind import COORDINATOR, Kind, Resource, Schema, condition_is_true, numbered, replicas
from workloads.kinds.training_operator import INDEX_LABEL, Replica, RunPolicy, replica, run_policy

if TYPE_CHECKING:
    from pulumi import Output, ResourceOptions

    from workloads.pod import Placement
    from workloads.spec import JobSpec

CONTAINER = "mxnet"
"""Name of the container that the operator expects."""
MXNET = "MXNet"
SCHEDULERS = 1
RESOURCE = Resource(
    api_version="kubeflow.org/v1",
    kind="MXJob",
    plural="mxjobs",
    is_running=condition_is_true("Running"),
    suspend=("runPolicy", "suspend"),
    hosts=replicas("mxReplicaSpecs", "Worker"),
)


@dataclass(frozen=True, kw_only=True)
class MXJobSpec(Schema):
    """The job."""

    job_mode: str
    mx_replica_specs: dict[str, Replica]
    run_policy: RunPolicy


class MXJob(Kind):
    """Kind `mx-job`."""

    name = "mx-job"
    operators = frozenset({"training-operator-mxjob"})
    resource = RESOURCE
    index_label = INDEX_LABEL
    no_tpu = "MXNet has no TPU device"
    runs_recipes = False
    # https://github.com/kubernetes-sigs/kueue/pull/4077
    is_queueable = False
    own_keys = ("parameter_servers",)
    image_software = MXNET
    one_process_per_host = True
    recreates_pods = True
    operator_variables = (
        *("DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_SERVER", "DMLC_NUM_WORKER", "DMLC_ROLE"),
        *("DMLC_USE_KUBERNETES", "DMLC_WORKER_ID", "MX_CONFIG"),
    )

    def extra_pods(self, spec: JobSpec) -> tuple[PodGroup, ...]:
        capacity, key = spec.resources.capacity, "parameter_servers"
        return (
            PodGroup(count=spec.parameter_servers, per_pod=capacity, key=key, role="parameter servers"),
            PodGroup(count=SCHEDULERS, per_pod=COORDINATOR, key="kind", role="scheduler"),
        )

    def child_suffixes(self, spec: JobSpec) -> Iterator[str]:
        yield "-scheduler-0"
        yield from numbered("server", spec.parameter_servers)
        yield from numbered("worker", spec.hosts)

    def problems(self, spec: JobSpec) -> Iterator[Problem]:
        if spec.processes_per_host > 1 and not spec.tpu:
            message = "a worker of an mx-job is one process; remove it, and raise `hosts` for more workers"
            yield Problem("job.processes_per_host.of_mx_job", ("processes_per_host",), message, spec.processes_per_host)

    def render(self, name: str, spec: JobSpec, placement: Placement, opts: ResourceOptions) -> Output[str]:
        """Create the MXJob."""
        from workloads.command import host_command, process_layout
        from workloads.objects import CREATED_IS_READY, custom_job, metadata
        from workloads.pod import Pod, pod_template

        command = host_command(spec, process_layout(spec))
        counts = {"scheduler": SCHEDULERS, "server": spec.parameter_servers, "worker": spec.hosts}
        mxnet = Pod(command=command, container=CONTAINER, restart_policy=None)
        capacities = {"scheduler": COORDINATOR}
        pods = {role: replace(mxnet, role=role, capacity=capacities.get(role)) for role in counts}
        return custom_job(
            f"{name}-job",
            RESOURCE,
            metadata(spec, placement, CREATED_IS_READY),
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
