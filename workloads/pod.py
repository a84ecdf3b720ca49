"""The only place that builds a pod template: the host of a job, whatever kind of job it is."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.core.v1 import (
    CapabilitiesArgs,
    ContainerArgs,
    EmptyDirVolumeSourceArgs,
    EnvVarArgs,
    EnvVarSourceArgs,
    ObjectFieldSelectorArgs,
    PersistentVolumeClaimVolumeSourceArgs,
    PodSecurityContextArgs,
    PodSpecArgs,
    PodTemplateSpecArgs,
    ResourceRequirementsArgs,
    SeccompProfileArgs,
    SecurityContextArgs,
    TolerationArgs,
    TopologySpreadConstraintArgs,
    VolumeArgs,
    VolumeMountArgs,
)
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs

from infra.naming import job_labels, job_selector
from workloads.command import Command, FieldReference, torchrun
from workloads.spec import JobSpec
from workloads.topology import topology

CONTAINER = "trainer"
USER = 1000
"""The user and group that every process of a job runs as."""
LOST_NODE_SECONDS = 30
"""How long a pod stays bound to a node that does not answer before it is replaced; Kubernetes' own default is 300."""
BUCKET_PATH = "/bucket"
SCRATCH_PATH = "/tmp"


@dataclass(frozen=True, kw_only=True)
class Placement:
    """What the platform gives to a job's pods; known when the platform is."""

    namespace: pulumi.Input[str]
    """Kubernetes namespace."""
    service_account: pulumi.Input[str]
    """Service account of the pods."""
    image: pulumi.Input[str]
    """Trainer image."""
    bucket_url: pulumi.Input[str]
    """The bucket as a pod sees it, a URL that fsspec opens."""
    bucket_claim: pulumi.Input[str] | None = None
    """Persistent volume claim that is mounted as the bucket; None for an object store."""


def pod_template(spec: JobSpec, placement: Placement) -> PodTemplateSpecArgs:
    """The pod of each host; it satisfies the `restricted` Pod Security Standard.

    Rules: https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted
    """
    return PodTemplateSpecArgs(
        metadata=ObjectMetaArgs(
            labels={**job_labels(spec.name, spec.recipe), "app.kubernetes.io/component": "worker"},
            annotations={"kubectl.kubernetes.io/default-container": CONTAINER},
        ),
        spec=PodSpecArgs(
            subdomain=spec.name,
            restart_policy="Never",
            service_account_name=placement.service_account,
            automount_service_account_token=False,
            enable_service_links=False,
            termination_grace_period_seconds=spec.grace_seconds,
            security_context=PodSecurityContextArgs(
                run_as_non_root=True,
                run_as_user=USER,
                run_as_group=USER,
                fs_group=USER,
                fs_group_change_policy="OnRootMismatch",
                seccomp_profile=SeccompProfileArgs(type="RuntimeDefault"),
            ),
            tolerations=[
                TolerationArgs(
                    key=f"node.kubernetes.io/{condition}",
                    operator="Exists",
                    effect="NoExecute",
                    toleration_seconds=LOST_NODE_SECONDS,
                )
                for condition in ("not-ready", "unreachable")
            ],
            topology_spread_constraints=[
                TopologySpreadConstraintArgs(
                    max_skew=1,
                    topology_key="kubernetes.io/hostname",
                    when_unsatisfiable="DoNotSchedule",
                    node_taints_policy="Honor",
                    label_selector=LabelSelectorArgs(match_labels=job_selector(spec.name)),
                )
            ],
            containers=[_container(spec, placement, torchrun(spec, topology(spec)))],
            volumes=_volumes(spec, placement),
        ),
    )


def _container(spec: JobSpec, placement: Placement, command: Command) -> ContainerArgs:
    resources = {"cpu": spec.resources.cpu, "memory": spec.resources.memory}
    program, *arguments = command.argv
    return ContainerArgs(
        name=CONTAINER,
        image=spec.image or placement.image,
        image_pull_policy="IfNotPresent",
        command=[program],
        args=arguments,
        env=_environment(placement, command),
        resources=ResourceRequirementsArgs(requests=resources, limits=resources),
        security_context=SecurityContextArgs(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=CapabilitiesArgs(drop=["ALL"]),
        ),
        volume_mounts=[
            VolumeMountArgs(name="shared-memory", mount_path="/dev/shm"),
            VolumeMountArgs(name="scratch", mount_path=SCRATCH_PATH),
            *([] if placement.bucket_claim is None else [VolumeMountArgs(name="bucket", mount_path=BUCKET_PATH)]),
        ],
    )


def _environment(placement: Placement, command: Command) -> list[EnvVarArgs]:
    """The command's environment, after what comes from the pod and the platform."""
    variables = [EnvVarArgs(name="TRAINYARD_BUCKET", value=placement.bucket_url)]
    # The root file system is read-only: libraries keep their caches in the home directory.
    for name, value in {"HOME": SCRATCH_PATH, **command.environment}.items():
        if isinstance(value, FieldReference):
            source = EnvVarSourceArgs(field_ref=ObjectFieldSelectorArgs(field_path=value.path))
            variables.append(EnvVarArgs(name=name, value_from=source))
        else:
            variables.append(EnvVarArgs(name=name, value=value))
    return variables


def _volumes(spec: JobSpec, placement: Placement) -> list[VolumeArgs]:
    shared_memory = EmptyDirVolumeSourceArgs(medium="Memory", size_limit=spec.shared_memory)
    volumes = [
        VolumeArgs(name="shared-memory", empty_dir=shared_memory),
        VolumeArgs(name="scratch", empty_dir=EmptyDirVolumeSourceArgs()),
    ]
    if placement.bucket_claim is not None:
        claim = PersistentVolumeClaimVolumeSourceArgs(claim_name=placement.bucket_claim)
        volumes.append(VolumeArgs(name="bucket", persistent_volume_claim=claim))
    return volumes
