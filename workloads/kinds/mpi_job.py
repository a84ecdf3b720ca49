"""Kind `mpi-job`: an MPIJob (kubeflow.org/v2beta1): workers that run sshd, and a launcher that runs mpirun on them.

The launcher is made when every worker answers: a worker's name is published only then. The launcher is a Job of the
operator's whose failure policy cannot be set: each of its failures counts as a restart, evictions and final exit codes
too. A worker that is deleted, or evicted by a request, is made again; one that its node evicts as it runs short ends
the job, which is the operator's own rule. Workers go when the job ends: sshd does not end by itself.
Source: github.com/kubeflow/mpi-operator v0.8.2, pkg/controller.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.core.v1 import PodTemplateSpecArgs

from workloads.command import host_command
from workloads.kinds.parts import CREATED_IS_READY, Schema, custom_job, metadata
from workloads.kinds.training_operator import RunPolicy, run_policy
from workloads.mpi import SSH_FOLDER, SSH_PORT, launcher_command, slots_per_worker, worker_command
from workloads.pod import Placement, Pod, pod_template
from workloads.spec import JobSpec
from workloads.topology import topology

LAUNCHERS = 1


@dataclass(frozen=True, kw_only=True)
class MPIReplica(Schema):
    """Equal pods of the job."""

    replicas: int
    restart_policy: str
    template: PodTemplateSpecArgs


@dataclass(frozen=True, kw_only=True)
class MPIJobSpec(Schema):
    """The job."""

    launcher_creation_policy: str
    mpi_implementation: str
    mpi_replica_specs: dict[str, MPIReplica]
    run_policy: RunPolicy
    slots_per_worker: int
    ssh_auth_mount_path: str


def render(name: str, spec: JobSpec, placement: Placement, opts: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """Create the MPIJob; returns its name."""
    shape = topology(spec)
    host = host_command(spec, shape)
    launcher = Pod(command=launcher_command(spec, shape, host, placement.profile), role="launcher", restart_policy=None)
    worker = Pod(command=worker_command(host), restart_policy=None, port=SSH_PORT)
    return custom_job(
        f"{name}-job",
        "kubeflow.org/v2beta1",
        "MPIJob",
        metadata(spec, placement, CREATED_IS_READY),
        MPIJobSpec(
            launcher_creation_policy="WaitForWorkersReady",
            mpi_implementation="OpenMPI",
            mpi_replica_specs={
                "Launcher": _replica(LAUNCHERS, pod_template(spec, placement, launcher)),
                "Worker": _replica(spec.hosts, pod_template(spec, placement, worker)),
            },
            run_policy=run_policy(spec, spec.hosts + LAUNCHERS),
            slots_per_worker=slots_per_worker(spec, shape),
            ssh_auth_mount_path=SSH_FOLDER,
        ),
        opts,
    )


def _replica(count: int, template: PodTemplateSpecArgs) -> MPIReplica:
    return MPIReplica(replicas=count, restart_policy="Never", template=template)
