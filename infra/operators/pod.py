"""Pod of an operator. It meets the `restricted` Pod Security Standard. It is ready when its webhooks answer. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import pulumi
from pulumi_kubernetes.core.v1 import (
    CapabilitiesArgs,
    ConfigMapVolumeSourceArgs,
    ContainerArgs,
    EnvVarArgs,
    EnvVarSourceArgs,
    HTTPGetActionArgs,
    ObjectFieldSelectorArgs,
    PodSecurityContextArgs,
    PodSpecArgs,
    PodTemplateSpecArgs,
    ProbeArgs,
    ResourceRequirementsArgs,
    SeccompProfileArgs,
    SecretVolumeSourceArgs,
    SecurityContextArgs,
    VolumeArgs,
    VolumeMountArgs,
)
from pulumi_kubernetes.meta.v1 import ObjectMetaArgs

from infra.hardware import format_cpu, format_memory
from infra.operators.release import Release
from infra.operators.releases import REQUEST

WEBHOOK_PORT = 9443
CERTIFICATES = "/tmp/k8s-webhook-server/serving-certs"
"""Folder in which controller-runtime looks for the certificate of its webhooks."""
USER = 65532
MEMORY_LIMIT = "2Gi"
"""Memory limit of an operator, which caches all pods of the cluster."""
START_SECONDS = 300
"""Seconds until the startup probe fails. A kubelet may need 90 s to pass a changed Secret to a pod that mounts it."""


def operator_pod(release: Release, image: pulumi.Input[str], labels: Mapping[str, str]) -> PodTemplateSpecArgs:
    """Return the pod of one operator. Its service account has the operator's name.

    Leave out empty lists, as the API server does. Otherwise every update would contain a change.
    """
    return PodTemplateSpecArgs(
        metadata=ObjectMetaArgs(labels=labels),
        spec=PodSpecArgs(
            service_account_name=release.name,
            enable_service_links=False,
            termination_grace_period_seconds=10,
            security_context=PodSecurityContextArgs(
                run_as_non_root=True,
                run_as_user=USER,
                run_as_group=USER,
                fs_group=USER,
                seccomp_profile=SeccompProfileArgs(type="RuntimeDefault"),
            ),
            containers=[_container(release, image)],
            volumes=_volumes(release) or None,
        ),
    )


def _container(release: Release, image: pulumi.Input[str]) -> ContainerArgs:
    requests = {"cpu": format_cpu(REQUEST.millicores), "memory": format_memory(REQUEST.memory)}
    here = EnvVarSourceArgs(field_ref=ObjectFieldSelectorArgs(field_path="metadata.namespace"))
    return ContainerArgs(
        name="operator",
        image=image,
        image_pull_policy="IfNotPresent",
        args=list(release.arguments) or None,
        # Namespace of the Secret, for operators that do not read it from the service account.
        env=[EnvVarArgs(name="MY_POD_NAMESPACE", value_from=here)],
        resources=ResourceRequirementsArgs(requests=requests, limits={"memory": MEMORY_LIMIT}),
        security_context=SecurityContextArgs(
            allow_privilege_escalation=False,
            read_only_root_filesystem=True,
            capabilities=CapabilitiesArgs(drop=["ALL"]),
        ),
        startup_probe=_startup(release),
        readiness_probe=ProbeArgs(http_get=_health(release, release.ready_path), period_seconds=10),
        liveness_probe=ProbeArgs(http_get=_health(release, "/healthz"), period_seconds=20, timeout_seconds=5),
        volume_mounts=_mounts(release) or None,
    )


def _health(release: Release, path: str) -> HTTPGetActionArgs:
    return HTTPGetActionArgs(port=release.health_port, path=path)


def _startup(release: Release) -> ProbeArgs:
    """Probe the webhook that the operator registers last. Without a review, it answers with an error review."""
    probed = _health(release, release.ready_path)
    if release.webhooks is not None:
        probed = HTTPGetActionArgs(port=WEBHOOK_PORT, path=release.webhooks.last_path, scheme="HTTPS")
    return ProbeArgs(http_get=probed, period_seconds=1, failure_threshold=START_SECONDS)


def _mounts(release: Release) -> list[VolumeMountArgs]:
    found = [
        VolumeMountArgs(name="files", mount_path=path, sub_path=path.rpartition("/")[2], read_only=True)
        for path, _ in release.files
    ]
    if release.webhooks is not None:
        found.append(VolumeMountArgs(name="certificate", mount_path=CERTIFICATES, read_only=True))
    return found


def _volumes(release: Release) -> list[VolumeArgs]:
    found = []
    if release.files:
        found.append(VolumeArgs(name="files", config_map=ConfigMapVolumeSourceArgs(name=release.name)))
    if release.webhooks is not None:
        secret = SecretVolumeSourceArgs(secret_name=release.webhooks.secret)
        found.append(VolumeArgs(name="certificate", secret=secret))
    return found
