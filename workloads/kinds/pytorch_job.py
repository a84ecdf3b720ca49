"""Kind `pytorch-job`: a PyTorchJob (kubeflow.org/v1). The operator sets all of torchrun's addresses, ranks and counts.

Host 0 is the Master and the others are Workers; an elastic job has Workers only. Restarts: workloads/kinds/
training_operator.py. Source: github.com/kubeflow/training-operator v1.9.4, pkg/controller.v1/pytorch.
"""

from __future__ import annotations

from dataclasses import dataclass

import pulumi

from workloads.command import RENDEZVOUS_PORT, host_command, rendezvous_options
from workloads.kinds.parts import CREATED_IS_READY, Schema, custom_job, metadata
from workloads.kinds.training_operator import Replica, RunPolicy, replica, run_policy
from workloads.pod import Placement, Pod, pod_template
from workloads.spec import JobSpec
from workloads.topology import topology

CONTAINER = "pytorch"
"""The container that the operator looks for."""


@dataclass(frozen=True, kw_only=True)
class RendezvousOption(Schema):
    """One option of torchrun's rendezvous."""

    key: str
    value: str


@dataclass(frozen=True, kw_only=True)
class ElasticPolicy(Schema):
    """What the operator hands to torchrun as --nnodes and --rdzv-*."""

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


def render(name: str, spec: JobSpec, placement: Placement, opts: pulumi.ResourceOptions) -> pulumi.Output[str]:
    """Create the PyTorchJob; returns its name."""
    shape = topology(spec)
    pod = Pod(command=host_command(spec, shape, placement.profile), container=CONTAINER, restart_policy=None)
    template = pod_template(spec, placement, pod)
    counts = {"Worker": shape.hosts} if spec.elastic else {"Master": 1, "Worker": shape.hosts - 1}
    return custom_job(
        f"{name}-job",
        "kubeflow.org/v1",
        "PyTorchJob",
        metadata(spec, placement, CREATED_IS_READY),
        PyTorchJobSpec(
            elastic_policy=_elastic_policy(spec),
            nproc_per_node=str(shape.processes_per_host),
            pytorch_replica_specs={role: replica(spec, count, template) for role, count in counts.items() if count},
            run_policy=run_policy(spec, shape.fewest_hosts),
        ),
        opts,
    )


def _elastic_policy(spec: JobSpec) -> ElasticPolicy | None:
    if spec.elastic is None:
        return None
    return ElasticPolicy(
        min_replicas=spec.elastic.min_hosts,
        max_replicas=spec.elastic.max_hosts,
        max_restarts=spec.restarts,
        rdzv_backend=spec.meeting,
        rdzv_host=f"{spec.name}-worker-0",
        rdzv_port=RENDEZVOUS_PORT,
        rdzv_id=spec.name,
        rdzv_conf=tuple(RendezvousOption(key=key, value=value) for key, value in rendezvous_options(spec).items()),
    )
