"""Kind `mx-job`: an MXJob (kubeflow.org/v1) with a scheduler, parameter servers and workers, all running one script.

The operator tells each pod its role and the scheduler's address (`DMLC_*`), and `import mxnet` makes a scheduler or
server of it. The job is complete when the scheduler is. The last release with MXJob is training-operator v1.8
(https://github.com/kubeflow/trainer/issues/1996). Restarts: workloads/kinds/training_operator.py.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from workloads.command import host_command
from workloads.kinds.parts import CREATED_IS_READY, Schema, custom_job, metadata
from workloads.kinds.training_operator import Replica, RunPolicy, replica, run_policy
from workloads.pod import Placement, Pod, Role, pod_template
from workloads.spec import JobSpec
from workloads.topology import topology

CONTAINER = "mxnet"
"""The container that the operator looks for."""
SCHEDULERS = 1


@dataclass(frozen=True, kw_only=True)
class MXJobSpec(Schema):
    """The job."""

    job_mode: str
    mx_replica_specs: dict[str, Replica]
    run_policy: RunPolicy


def render(name: str, spec: JobSpec, placement: Placement, opts: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """Create the MXJob; returns its name."""
    command = host_command(spec, topology(spec))
    counts: dict[Role, int] = {"scheduler": SCHEDULERS, "server": spec.parameter_servers, "worker": spec.hosts}
    pods = {role: Pod(command=command, role=role, container=CONTAINER, restart_policy=None) for role in counts}
    return custom_job(
        f"{name}-job",
        "kubeflow.org/v1",
        "MXJob",
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
