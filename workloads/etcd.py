"""The etcd for a job's rendezvous. Its data does not outlive the job."""

from __future__ import annotations

import pulumi
from pulumi_kubernetes.apps.v1 import Deployment, DeploymentSpecArgs, DeploymentStrategyArgs
from pulumi_kubernetes.core.v1 import (
    ContainerArgs,
    EmptyDirVolumeSourceArgs,
    PodSpecArgs,
    PodTemplateSpecArgs,
    Service,
    ServicePortArgs,
    ServiceSpecArgs,
    VolumeArgs,
    VolumeMountArgs,
)
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs

from infra.naming import COMPONENT_LABEL, JOB_LABEL, job_labels
from workloads.command import ETCD_PORT, etcd_name
from workloads.kinds.kind import COORDINATOR
from workloads.objects import UNAWAITED
from workloads.pod import (
    CONTAINER_SECURITY,
    POD_SECURITY,
    Placement,
    fixed_resources,
    lost_node_tolerations,
    port_probe,
)
from workloads.spec import JobSpec

DATA = "/var/lib/etcd"


def render_etcd(name: str, spec: JobSpec, placement: Placement, opts: pulumi.ResourceOptions) -> None:
    """Create an etcd with one member and its Service.

    torchrun uses etcd's v2 API, which must be enabled: https://github.com/pytorch/pytorch/issues/158326.
    """
    # Without the job label, `make up` and `make status` do not treat the pod as a host of the job.
    labels = {key: value for key, value in job_labels(spec.name, spec.recipe).items() if key != JOB_LABEL}
    selector = {"app.kubernetes.io/instance": spec.name, COMPONENT_LABEL: "rendezvous"}
    meta = ObjectMetaArgs(name=etcd_name(spec), namespace=placement.namespace, labels=labels, annotations=UNAWAITED)
    ports = [ServicePortArgs(name="client", port=ETCD_PORT)]
    Service(f"{name}-etcd-address", metadata=meta, spec=ServiceSpecArgs(selector=selector, ports=ports), opts=opts)
    Deployment(
        f"{name}-etcd",
        metadata=meta,
        spec=DeploymentSpecArgs(
            replicas=1,
            strategy=DeploymentStrategyArgs(type="Recreate"),
            selector=LabelSelectorArgs(match_labels=selector),
            template=PodTemplateSpecArgs(
                metadata=ObjectMetaArgs(labels={**labels, **selector}), spec=_pod(spec, placement)
            ),
        ),
        opts=opts,
    )


def _pod(spec: JobSpec, placement: Placement) -> PodSpecArgs:
    address = f"http://{etcd_name(spec)}:{ETCD_PORT}"
    return PodSpecArgs(
        service_account_name=placement.service_account,
        automount_service_account_token=False,
        enable_service_links=False,
        priority_class_name=spec.priority_class,
        security_context=POD_SECURITY,
        tolerations=lost_node_tolerations(),
        containers=[
            ContainerArgs(
                name="etcd",
                image=placement.etcd_image,
                image_pull_policy="IfNotPresent",
                command=["etcd"],
                args=[
                    f"--data-dir={DATA}",
                    f"--listen-client-urls=http://0.0.0.0:{ETCD_PORT}",
                    f"--advertise-client-urls={address}",
                    "--enable-v2=true",
                ],
                resources=fixed_resources(COORDINATOR),
                security_context=CONTAINER_SECURITY,
                readiness_probe=port_probe(ETCD_PORT),
                volume_mounts=[VolumeMountArgs(name="data", mount_path=DATA)],
            )
        ],
        volumes=[VolumeArgs(name="data", empty_dir=EmptyDirVolumeSourceArgs())],
    )
