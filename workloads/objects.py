"""What the resources of several kinds are made of: metadata, failure policy, custom resources that no update awaits."""

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
from workloads.kinds.kind import Resource
from workloads.kinds.schema import Schema
from workloads.pod import Placement
from workloads.spec import JobSpec

FINAL_EXIT_CODES = (65, 66, 69, 78)
"""Exit codes after which a restart would end the same way: diverged, data error, slow link, bad configuration."""
LEFT_EXIT_CODE = 75
"""Exit code of a host that was told to leave, or whose peers left."""
LOST_EXIT_CODES = (LEFT_EXIT_CODE, 128, 134, 135, 137, 139, 143, 255)
"""Exit codes of a launcher that did not end the job itself: told to leave (75), not started (128), killed by a signal
(128 and its number: abort, bus error, kill, segmentation fault, termination), or lost with its shim (255)."""

UNAWAITED = {"pulumi.com/skipAwait": "true"}
"""For what is not ready before the job's pods run."""
CREATED_IS_READY = {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"}
"""A job ends when training does, which no update waits for. Its deletion is awaited, as it would not be with
`skipAwait` (https://github.com/pulumi/pulumi-kubernetes/issues/3154): a job that takes its place has the same name."""
QUEUE_PATH = f'metadata.labels["{QUEUE_LABEL}"]'
"""The label in a resource: Kueue refuses a change of it in a job that runs, so such a change makes the job again."""
CHANGED_IN_PLACE = ("suspend", "runPolicy")
"""Parts of a job's spec that its operator obeys while it runs; a change of any other makes the job again."""


def metadata(spec: JobSpec, placement: Placement, annotations: dict[str, str]) -> ObjectMetaArgs:
    """Metadata of the resource that is the job."""
    labels = job_labels(spec.name, spec.recipe)
    return ObjectMetaArgs(
        name=spec.name,
        namespace=placement.namespace,
        labels={**labels, QUEUE_LABEL: spec.queue} if spec.queue else labels,
        annotations=annotations,
    )


def companion(spec: JobSpec, placement: Placement, name: str | None, annotations: dict[str, str]) -> ObjectMetaArgs:
    """Metadata of a resource beside the job, which no queue admits; without a name, Pulumi makes one."""
    labels = job_labels(spec.name, spec.recipe)
    return ObjectMetaArgs(name=name, namespace=placement.namespace, labels=labels, annotations=annotations or None)


def failure_policy(
    container: str, *, peers_leave: bool = False, launchers_restart: bool = False
) -> PodFailurePolicyArgs:
    """Disruptions do not count towards the limit, and some exit codes end the job at once.

    `peers_leave` also ignores hosts that left because others did, where one more failure would restart the whole set.
    With `launchers_restart` a pod whose launcher ends by itself ends the job: no restart is left, or none would help.
    Rules: https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
    """
    disrupted = PodFailurePolicyOnPodConditionsPatternArgs(type="DisruptionTarget", status="True")
    final = _codes(container, LOST_EXIT_CODES, "NotIn") if launchers_restart else _codes(container, FINAL_EXIT_CODES)
    rules = [
        PodFailurePolicyRuleArgs(action="Ignore", on_pod_conditions=[disrupted]),
        PodFailurePolicyRuleArgs(action="FailJob", on_exit_codes=final),
    ]
    if peers_leave:
        rules.append(PodFailurePolicyRuleArgs(action="Ignore", on_exit_codes=_codes(container, (LEFT_EXIT_CODE,))))
    return PodFailurePolicyArgs(rules=rules)


def _codes(container: str, codes: tuple[int, ...], operator: str = "In") -> PodFailurePolicyOnExitCodesRequirementArgs:
    return PodFailurePolicyOnExitCodesRequirementArgs(container_name=container, operator=operator, values=list(codes))


def custom_job(
    name: str, resource: Resource, metadata: ObjectMetaArgs, spec: Schema, opts: pulumi.ResourceOptions
) -> pulumi.Output[str]:
    """Create the custom resource that is a job; returns its name.

    It is made again, the old one first, when what it runs changes.
    """
    plain = spec.plain()
    replacing = pulumi.ResourceOptions(
        delete_before_replace=True,
        replace_on_changes=[QUEUE_PATH, *(f"spec.{key}" for key in plain if key not in CHANGED_IN_PLACE)],
    )
    options = pulumi.ResourceOptions.merge(opts, replacing)
    version, kind = resource.api_version, resource.kind
    job = CustomResource(name, api_version=version, kind=kind, metadata=metadata, spec=plain, opts=options)
    return name_of(job)


def name_of(resource: CustomResource) -> pulumi.Output[str]:
    """The name that a resource has got; its class declares no property of its own."""
    found: pulumi.Output[dict[str, str]] = vars(resource)["metadata"]
    return found["name"]
