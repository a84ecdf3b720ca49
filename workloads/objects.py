"""Builders that several kinds share: metadata, the failure policy, and the custom resource of a job."""

from __future__ import annotations

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.batch.v1 import (
    PodFailurePolicyArgs,
    PodFailurePolicyOnExitCodesRequirementArgs,
    PodFailurePolicyOnPodConditionsPatternArgs,
    PodFailurePolicyRuleArgs,
)
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from infra.naming import QUEUE_LABEL, job_labels
from workloads.kinds.kind import Resource, Schema
from workloads.pod import Placement
from workloads.spec import JobSpec

FINAL_EXIT_CODES = (65, 66, 69, 78)
"""Exit codes of errors that a restart would repeat: diverged, data error, slow link, bad configuration."""
PREEMPTED_EXIT_CODE = 75
"""Exit code of a host that was preempted, or whose peers left."""
LOST_EXIT_CODES = (PREEMPTED_EXIT_CODE, 128, 134, 135, 137, 139, 143, 255)
"""Exit codes of a launcher that did not end the job itself. 75: preempted; 128: not started; 128 plus a signal's
number: killed (abort, bus error, kill, segmentation fault, termination); 255: its containerd shim died."""

UNAWAITED = {"pulumi.com/skipAwait": "true"}
"""Annotation of resources that become ready only when the job's pods run."""
CREATED_IS_READY = {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"}
"""Annotation that makes Pulumi wait for a job's creation, not its end. With `skipAwait` Pulumi would not wait for its
deletion either (https://github.com/pulumi/pulumi-kubernetes/issues/3154), and its replacement has the same name."""
QUEUE_PATH = f'metadata.labels["{QUEUE_LABEL}"]'
"""Path of the queue label in a resource. Kueue rejects a change of the label in a running job, so a change replaces the
job."""
CHANGED_IN_PLACE = ("suspend", "runPolicy")
"""Fields of a job's spec that its operator can change in a running job. A change of any other field replaces the
job."""


def metadata(spec: JobSpec, placement: Placement, annotations: dict[str, str]) -> ObjectMetaArgs:
    """Return the metadata of the job's main resource."""
    labels = job_labels(spec.name, spec.recipe)
    return ObjectMetaArgs(
        name=spec.name,
        namespace=placement.namespace,
        labels={**labels, QUEUE_LABEL: spec.queue} if spec.queue else labels,
        annotations=annotations,
    )


def secondary_metadata(
    spec: JobSpec, placement: Placement, name: str | None, annotations: dict[str, str]
) -> ObjectMetaArgs:
    """Return the metadata of another resource of the job, without the queue label. If `name` is None, Pulumi generates
    one."""
    labels = job_labels(spec.name, spec.recipe)
    return ObjectMetaArgs(name=name, namespace=placement.namespace, labels=labels, annotations=annotations or None)


def failure_policy(
    container: str, *, peers_leave: bool = False, launchers_restart: bool = False
) -> PodFailurePolicyArgs:
    """Return a policy that does not count disruptions as failures and fails the job at once on final exit codes.

    `peers_leave` also ignores hosts that left because others did; otherwise JobSet would count one more failure and
    restart the whole set. With `launchers_restart`, a pod whose launcher exits by itself fails the job: the launcher
    has used all restarts, or a restart would not help.

    Rules: https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
    """
    disrupted = PodFailurePolicyOnPodConditionsPatternArgs(type="DisruptionTarget", status="True")
    final = _codes(container, LOST_EXIT_CODES, "NotIn") if launchers_restart else _codes(container, FINAL_EXIT_CODES)
    rules = [
        PodFailurePolicyRuleArgs(action="Ignore", on_pod_conditions=[disrupted]),
        PodFailurePolicyRuleArgs(action="FailJob", on_exit_codes=final),
    ]
    if peers_leave:
        rules.append(PodFailurePolicyRuleArgs(action="Ignore", on_exit_codes=_codes(container, (PREEMPTED_EXIT_CODE,))))
    return PodFailurePolicyArgs(rules=rules)


def _codes(container: str, codes: tuple[int, ...], operator: str = "In") -> PodFailurePolicyOnExitCodesRequirementArgs:
    return PodFailurePolicyOnExitCodesRequirementArgs(container_name=container, operator=operator, values=list(codes))


def custom_job(
    name: str, resource: Resource, metadata: ObjectMetaArgs, spec: Schema, opts: pulumi.ResourceOptions
) -> pulumi.Output[str]:
    """Create the custom resource of a job. Return its name.

    A change of the spec replaces the job, unless the operator can change the field in place. Pulumi deletes the old job
    first.
    """
    plain_spec = spec.plain()
    replacement = pulumi.ResourceOptions(
        delete_before_replace=True,
        replace_on_changes=[QUEUE_PATH, *(f"spec.{key}" for key in plain_spec if key not in CHANGED_IN_PLACE)],
    )
    job = CustomResource(
        name,
        api_version=resource.api_version,
        kind=resource.kind,
        metadata=metadata,
        spec=plain_spec,
        opts=pulumi.ResourceOptions.merge(opts, replacement),
    )
    return name_of(job)


def name_of(resource: CustomResource) -> pulumi.Output[str]:
    """Return the name of a custom resource. Its class declares no property for the metadata."""
    metadata: pulumi.Output[dict[str, str]] = vars(resource)["metadata"]
    return metadata["name"]
