"""Run policy and replicas of PyTorchJob and MXJob, from the CRDs of training-operator v1.9.4 and v1.8.1.

The operator retries only exit codes of 128 and above (`ExitCode`). A signal, an out-of-memory kill and a deleted or
evicted pod therefore restart the pod. An uncaught error (1) ends the job, as final codes do. `trainer.launch` adds 128
to its codes that mean "run it again". The operator does not count the pods that it recreates: with `restarts: 0` it
retries nothing, with more the only limit is `deadline_seconds`. Gang scheduling has an effect only if the operator runs
with a gang scheduler.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from workloads.kinds.kind import Schema

if TYPE_CHECKING:
    from pulumi_kubernetes.core.v1 import PodTemplateSpecArgs

    from workloads.spec import JobSpec


INDEX_LABEL = "training.kubeflow.org/replica-index"
"""Label of a pod with its index in its role, in the jobs of Kubeflow's operators."""


@dataclass(frozen=True, kw_only=True)
class SchedulingPolicy(Schema):
    """Gang scheduling."""

    min_available: int
    """Pods that start together or not at all."""
    priority_class: str | None
    """PriorityClass of the pod group."""


@dataclass(frozen=True, kw_only=True)
class RunPolicy(Schema):
    """Limits of the job, and the pods that it deletes at its end."""

    active_deadline_seconds: int | None
    backoff_limit: int
    clean_pod_policy: str
    """`Running` deletes only pods that still run when the job ends, so that the logs of the others stay."""
    scheduling_policy: SchedulingPolicy
    suspend: bool | None


@dataclass(frozen=True, kw_only=True)
class Replica(Schema):
    """Identical pods of the job."""

    replicas: int
    restart_policy: str
    template: PodTemplateSpecArgs


def run_policy(spec: JobSpec, num_pods: int) -> RunPolicy:
    """Return the run policy of a job of `num_pods` pods."""
    return RunPolicy(
        active_deadline_seconds=spec.deadline_seconds,
        backoff_limit=spec.restarts,
        clean_pod_policy="Running",
        scheduling_policy=SchedulingPolicy(min_available=num_pods, priority_class=spec.priority_class),
        suspend=spec.suspend or None,
    )


def replica(spec: JobSpec, count: int, template: PodTemplateSpecArgs) -> Replica:
    """Return `count` pods of the job."""
    return Replica(replicas=count, restart_policy="ExitCode" if spec.restarts else "Never", template=template)
