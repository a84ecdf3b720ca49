"""Kubernetes objects of jobs: metadata, failure policy, custom resources, and the pod template of all kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.batch.v1 import (
    PodFailurePolicyArgs,
    PodFailurePolicyOnExitCodesRequirementArgs,
    PodFailurePolicyOnPodConditionsPatternArgs,
    PodFailurePolicyRuleArgs,
)
from pulumi_kubernetes.core.v1 import (
    CapabilitiesArgs,
    ConfigMapVolumeSourceArgs,
    ContainerArgs,
    EmptyDirVolumeSourceArgs,
    EnvVarArgs,
    EnvVarSourceArgs,
    KeyToPathArgs,
    ObjectFieldSelectorArgs,
    PersistentVolumeClaimVolumeSourceArgs,
    PodSecurityContextArgs,
    PodSpecArgs,
    PodTemplateSpecArgs,
    ProbeArgs,
    ResourceRequirementsArgs,
    SeccompProfileArgs,
    SecretKeySelectorArgs,
    SecurityContextArgs,
    TCPSocketActionArgs,
    TolerationArgs,
    TopologySpreadConstraintArgs,
    VolumeArgs,
    VolumeMountArgs,
)
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs

from infra.hardware import Capacity, Scheduling
from infra.naming import COMPONENT_LABEL, QUEUE_LABEL, job_labels, job_selector, secret_name
from settings.kubernetes_values import format_cpu, format_memory
from workloads.command import BUCKET_PATH, SCRATCH_PATH, SHARED_MEMORY_PATH, Command, FieldReference
from workloads.kinds.kind import Resource, Schema
from workloads.spec import JobSpec
from workloads.user_files import DATA_PATH, DATA_VARIABLE, FOLDER_IN_POD

NON_RETRYABLE_EXIT_CODES = (65, 66, 69, 78)
"""Exit codes of errors that a restart would repeat: diverged, data error, slow link, bad configuration."""
PREEMPTED_EXIT_CODE = 75
"""Exit code of a host that was preempted, or whose peers left."""
LOST_LAUNCHER_EXIT_CODES = (PREEMPTED_EXIT_CODE, 128, 134, 135, 137, 139, 143, 255)
"""Exit codes of a launcher that was lost and did not decide to end the job. 75: preempted; 128: not started; 128 plus a
signal's number: killed (abort, bus error, kill, segmentation fault, termination); 255: its containerd shim died."""

SKIP_AWAIT = {"pulumi.com/skipAwait": "true"}
"""Annotation of resources that become ready only when the job's pods run."""
WAIT_FOR_CREATION = {"pulumi.com/waitFor": "jsonpath={.metadata.uid}"}
"""Annotation that makes Pulumi wait for a job's creation, not its end. With `skipAwait`, Pulumi would not wait for the
deletion of a replaced job either, and the new job with the same name would collide with it:
https://github.com/pulumi/pulumi-kubernetes/issues/3154."""
KEEP_ON_NODE = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
"""Annotation of pods that the cluster autoscaler may not evict to remove a node that is less than half in use:
https://github.com/kubernetes/autoscaler/blob/master/cluster-autoscaler/FAQ.md#what-types-of-pods-can-prevent-ca-from-removing-a-node"""
QUEUE_PATH = f'metadata.labels["{QUEUE_LABEL}"]'
"""Path of the queue label in a resource. A change of the label replaces the job, because Kueue rejects such a change in
a running job."""


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
    """Return the metadata of another resource of the job, without the queue label.

    If `name` is None, Pulumi generates a name.
    """
    labels = job_labels(spec.name, spec.recipe)
    return ObjectMetaArgs(name=name, namespace=placement.namespace, labels=labels, annotations=annotations or None)


def failure_policy(
    container: str, *, peers_leave: bool = False, launchers_restart: bool = False
) -> PodFailurePolicyArgs:
    """Return a policy that does not count disruptions, and fails the job at once for NON_RETRYABLE_EXIT_CODES.

    `peers_leave` also ignores hosts that left because others did. Otherwise JobSet would count one more failure and
    restart the whole set. With `launchers_restart`, the job fails at once for all codes except
    LOST_LAUNCHER_EXIT_CODES: such a launcher has used all restarts, or a restart would not help.

    Rules: https://kubernetes.io/docs/concepts/workloads/controllers/job/#pod-failure-policy
    """
    disrupted = PodFailurePolicyOnPodConditionsPatternArgs(type="DisruptionTarget", status="True")
    final = (
        _codes(container, LOST_LAUNCHER_EXIT_CODES, "NotIn")
        if launchers_restart
        else _codes(container, NON_RETRYABLE_EXIT_CODES)
    )
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

    A change of the spec replaces the job, except a change of `suspend`: operators ignore or reject most other changes.
    Pulumi deletes the old job first.
    """
    replacement = pulumi.ResourceOptions(
        delete_before_replace=True,
        replace_on_changes=[QUEUE_PATH, *(f"spec.{path}" for path in spec.paths_except(*resource.suspend))],
    )
    job = CustomResource(
        name,
        api_version=resource.api_version,
        kind=resource.kind,
        metadata=metadata,
        spec=spec.plain(),
        opts=pulumi.ResourceOptions.merge(opts, replacement),
    )
    return name_of(job)


def name_of(resource: CustomResource) -> pulumi.Output[str]:
    """Return the name of a custom resource, from the metadata, for which Pulumi's class has no property."""
    metadata: pulumi.Output[dict[str, str]] = vars(resource)["metadata"]
    return metadata["name"]


CONTAINER = "trainer"
USER = 1000
"""User and group of every process of a job."""
LOST_NODE_SECONDS = 30
"""Seconds that a pod stays on an unreachable node before Kubernetes replaces it. The default is 300."""
MAX_STARTUP_FAILURES = 150
"""Number of failed startup probes after which the kubelet kills a container: one every two seconds, so five minutes."""
PUBLIC_ETCD_IMAGE = "registry.k8s.io/etcd:3.5.21-0"
"""Kubernetes' image of etcd 3.5."""
POD_SECURITY = PodSecurityContextArgs(
    run_as_non_root=True,
    run_as_user=USER,
    run_as_group=USER,
    fs_group=USER,
    fs_group_change_policy="OnRootMismatch",
    seccomp_profile=SeccompProfileArgs(type="RuntimeDefault"),
)
CONTAINER_SECURITY = SecurityContextArgs(
    allow_privilege_escalation=False,
    read_only_root_filesystem=True,
    capabilities=CapabilitiesArgs(drop=["ALL"]),
)
WORKER = "worker"
"""Role of the pods that train."""


@dataclass(frozen=True, kw_only=True)
class Placement:
    """The platform's values for a job's pods, known after the platform exists."""

    namespace: pulumi.Input[str]
    service_account: pulumi.Input[str]
    image: pulumi.Input[str]
    """Image of the hosts."""
    bucket_url: pulumi.Input[str]
    """URL of the bucket in a pod, which fsspec opens."""
    bucket_claim: pulumi.Input[str] | None = None
    """PersistentVolumeClaim to mount as the bucket; None for an object store."""
    data_location: str | None = None
    """Path or URL of the job's data in a pod; None without data."""
    data_claim: pulumi.Input[str] | None = None
    """PersistentVolumeClaim to mount read-only as the data; None for data in a bucket."""
    scheduling: Scheduling = field(default_factory=Scheduling)
    script: str | None = None
    """ConfigMap with the user's script; None if the script is in the image or in a mounted bucket."""
    script_paths: Mapping[str, str] = field(default_factory=dict)
    """Key in the ConfigMap -> path of the file; empty if keys and paths are the same."""
    etcd_image: pulumi.Input[str] = PUBLIC_ETCD_IMAGE
    """Image with `etcd` 3.5 or older: torch uses the v2 API, which etcd 3.6 removed."""


@dataclass(frozen=True, kw_only=True)
class Pod:
    """Properties of a pod that depend on its job's kind and its role."""

    command: Command
    role: str = WORKER
    capacity: Capacity | None = None
    """Requests of the pod; None for the requests of a host."""
    container: str = CONTAINER
    """Name of its container, which some operators prescribe."""
    subdomain: str | None = None
    """Service of its host name; None if the operator sets it."""
    restart_policy: str | None = "Never"
    """Restart policy of its container; None if the operator sets it."""
    port: int | None = None
    """TCP port that accepts connections after the program has started; None without a startup probe."""
    deadline_seconds: int | None = None
    """Seconds after which the kubelet ends the pod; None if the operator ends the job at its deadline."""


def pod_template(spec: JobSpec, placement: Placement, pod: Pod) -> PodTemplateSpecArgs:
    """Return the pod of one role of a job. It satisfies the `restricted` Pod Security Standard.

    Rules: https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
    """
    # Only pods that train go to the nodes with accelerators.
    scheduling, tpu = (placement.scheduling, spec.tpu) if pod.role == WORKER else (Scheduling(), None)
    program, *arguments = pod.command.argv
    return PodTemplateSpecArgs(
        metadata=ObjectMetaArgs(
            labels={**job_labels(spec.name, spec.recipe), COMPONENT_LABEL: pod.role},
            annotations={
                "kubectl.kubernetes.io/default-container": pod.container,
                **KEEP_ON_NODE,
                **scheduling.annotations,
            },
        ),
        spec=PodSpecArgs(
            subdomain=pod.subdomain,
            restart_policy=pod.restart_policy,
            service_account_name=placement.service_account,
            automount_service_account_token=False,
            enable_service_links=False,
            priority_class_name=spec.priority_class,
            active_deadline_seconds=pod.deadline_seconds,
            termination_grace_period_seconds=spec.grace_seconds,
            security_context=POD_SECURITY,
            node_selector={**scheduling.node_selector, **(tpu.node_labels if tpu else {})} or None,
            tolerations=[
                *lost_node_tolerations(),
                *(TolerationArgs(**cast(dict[str, Any], toleration)) for toleration in scheduling.tolerations),
            ],
            topology_spread_constraints=[
                TopologySpreadConstraintArgs(
                    max_skew=1,
                    topology_key="kubernetes.io/hostname",
                    when_unsatisfiable="DoNotSchedule",
                    node_taints_policy="Honor",
                    label_selector=LabelSelectorArgs(
                        match_labels={**job_selector(spec.name), COMPONENT_LABEL: pod.role}
                    ),
                )
            ],
            containers=[
                ContainerArgs(
                    name=pod.container,
                    image=placement.image,
                    image_pull_policy="IfNotPresent",
                    command=[program],
                    args=arguments,
                    env=_environment(spec, placement, pod.command),
                    resources=_resources(spec, scheduling, pod.capacity),
                    security_context=CONTAINER_SECURITY,
                    # Use a startup probe: a readiness probe would make sshd log a line every period.
                    startup_probe=None if pod.port is None else port_probe(pod.port, failures=MAX_STARTUP_FAILURES),
                    volume_mounts=_volume_mounts(placement, scheduling),
                )
            ],
            volumes=_volumes(spec, placement, scheduling),
        ),
    )


def lost_node_tolerations() -> list[TolerationArgs]:
    """Return tolerations that make Kubernetes replace the pods of a lost node after LOST_NODE_SECONDS."""
    return [
        TolerationArgs(
            key=f"node.kubernetes.io/{condition}",
            operator="Exists",
            effect="NoExecute",
            toleration_seconds=LOST_NODE_SECONDS,
        )
        for condition in ("not-ready", "unreachable")
    ]


def _volume_mounts(placement: Placement, scheduling: Scheduling) -> list[VolumeMountArgs]:
    mounts = [
        VolumeMountArgs(name="dshm", mount_path=SHARED_MEMORY_PATH),
        VolumeMountArgs(name="scratch", mount_path=SCRATCH_PATH),
    ]
    if placement.bucket_claim is not None:
        mounts.append(VolumeMountArgs(name="bucket", mount_path=BUCKET_PATH))
    if placement.data_claim is not None:
        mounts.append(VolumeMountArgs(name="data", mount_path=DATA_PATH, read_only=True))
    if placement.script is not None:
        mounts.append(VolumeMountArgs(name="script", mount_path=FOLDER_IN_POD))
    if nccl := scheduling.nccl_environment:
        mounts.append(VolumeMountArgs(name="profile", mount_path=nccl.mount, read_only=True))
    return mounts


def _resources(spec: JobSpec, scheduling: Scheduling, capacity: Capacity | None) -> ResourceRequirementsArgs:
    """Return the resources of a pod. Requests equal limits, so that a host does not share its resources."""
    if capacity is not None:
        return fixed_resources(capacity)
    resources = {"cpu": spec.resources.cpu, "memory": spec.resources.memory}
    if scheduling.accelerator_resource is not None and spec.accelerators:
        resources[scheduling.accelerator_resource] = str(spec.accelerators)
        resources |= scheduling.devices
    return ResourceRequirementsArgs(requests=resources, limits=resources)


def port_probe(port: int, failures: int | None = None) -> ProbeArgs:
    """Return a probe that connects to a port every two seconds. It fails after `failures` attempts (default: 3)."""
    return ProbeArgs(tcp_socket=TCPSocketActionArgs(port=port), period_seconds=2, failure_threshold=failures)


def fixed_resources(capacity: Capacity) -> ResourceRequirementsArgs:
    """Return resources whose requests and limits are `capacity`."""
    resources = {"cpu": format_cpu(capacity.millicores), "memory": format_memory(capacity.memory)}
    return ResourceRequirementsArgs(requests=resources, limits=resources)


def _environment(spec: JobSpec, placement: Placement, command: Command) -> list[EnvVarArgs]:
    """Return the variables of the platform, the command and the job's secrets. Each may refer to earlier variables."""
    variables = [EnvVarArgs(name="TRAINYARD_BUCKET", value=placement.bucket_url)]
    if placement.data_location is not None:
        variables.append(EnvVarArgs(name=DATA_VARIABLE, value=placement.data_location))
    node_environment = placement.scheduling.environment if spec.image_ref.builtin else {}
    # Libraries write caches into the home directory, so it must be writable.
    for name, value in {"HOME": SCRATCH_PATH, **node_environment, **command.environment}.items():
        if isinstance(value, FieldReference):
            source = EnvVarSourceArgs(field_ref=ObjectFieldSelectorArgs(field_path=value.path))
            variables.append(EnvVarArgs(name=name, value_from=source))
        else:
            variables.append(EnvVarArgs(name=name, value=value))
    for name in spec.secrets:
        key = SecretKeySelectorArgs(name=secret_name(spec.name), key=name)
        variables.append(EnvVarArgs(name=name, value_from=EnvVarSourceArgs(secret_key_ref=key)))
    return variables


def _volumes(spec: JobSpec, placement: Placement, scheduling: Scheduling) -> list[VolumeArgs]:
    shared_memory = EmptyDirVolumeSourceArgs(medium="Memory", size_limit=spec.shared_memory)
    volumes = [
        VolumeArgs(name="dshm", empty_dir=shared_memory),
        VolumeArgs(name="scratch", empty_dir=EmptyDirVolumeSourceArgs()),
    ]
    if placement.bucket_claim is not None:
        claim = PersistentVolumeClaimVolumeSourceArgs(claim_name=placement.bucket_claim)
        volumes.append(VolumeArgs(name="bucket", persistent_volume_claim=claim))
    if placement.data_claim is not None:
        claim = PersistentVolumeClaimVolumeSourceArgs(claim_name=placement.data_claim, read_only=True)
        volumes.append(VolumeArgs(name="data", persistent_volume_claim=claim))
    if placement.script is not None:
        items = [KeyToPathArgs(key=key, path=path) for key, path in placement.script_paths.items()] or None
        source = ConfigMapVolumeSourceArgs(name=placement.script, items=items)
        volumes.append(VolumeArgs(name="script", config_map=source))
    if nccl := scheduling.nccl_environment:
        claim = PersistentVolumeClaimVolumeSourceArgs(claim_name=nccl.claim, read_only=True)
        volumes.append(VolumeArgs(name="profile", persistent_volume_claim=claim))
    return volumes
