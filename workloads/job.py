"""TrainingJob component: the Kubernetes resources of one job, including etcd for its rendezvous."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pulumi
from pulumi_kubernetes.core.v1 import (
    ConfigMap,
    ContainerArgs,
    EmptyDirVolumeSourceArgs,
    PodSpecArgs,
    PodTemplateSpecArgs,
    Secret,
    Service,
    ServicePortArgs,
    ServiceSpecArgs,
    VolumeArgs,
    VolumeMountArgs,
)
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs

from infra.naming import COMPONENT_LABEL, JOB_LABEL, job_labels, secret_name
from workloads import user_files
from workloads.command import ETCD_PORT, etcd_name
from workloads.kinds import KINDS
from workloads.kinds.kind import COORDINATOR
from workloads.objects import (
    CONTAINER_SECURITY,
    KEEP_ON_NODE,
    POD_SECURITY,
    SKIP_AWAIT,
    Placement,
    fixed_resources,
    lost_node_tolerations,
    port_probe,
    secondary_metadata,
)
from workloads.spec import JobSpec


@dataclass(frozen=True, kw_only=True)
class TrainingJobArgs:
    """Arguments of a TrainingJob."""

    spec: JobSpec
    placement: Placement
    """Image, bucket, node selector and other values that the platform sets in the job's pods."""
    secrets: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Secret value of each variable in the spec's `secrets`."""
    project: Path = Path()
    """Folder of the stack's file, to which the paths of user scripts are relative."""
    left_out: frozenset[str] = frozenset()
    """Paths in the project that pods do not get with a script."""
    after: Sequence[pulumi.Resource] = ()
    """Resources that must exist before the job's pods can start."""


class TrainingJob(pulumi.ComponentResource):
    """Kubernetes resources of a distributed training job."""

    name: pulumi.Output[str]
    """Name of the job in its namespace, known after the job exists."""
    image: pulumi.Input[str]
    """Image of the hosts."""

    def __init__(self, name: str, args: TrainingJobArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:workloads:TrainingJob", name, None, opts)
        spec, placement = args.spec, args.placement
        self.image = placement.image
        # Child resources do not inherit `depends_on` from their component.
        dependencies = list(args.after)
        child = pulumi.ResourceOptions(parent=self, depends_on=dependencies)
        script = None
        if spec.script and user_files.is_in_project(spec.script):
            script = user_files.read_script(spec.script, args.project, args.left_out)
        if script and not script.needs_layer:
            config_map = ConfigMap(
                f"{name}-script",
                metadata=secondary_metadata(spec, placement, script.config_map(spec.name), {}),
                data={script.keys[path]: text for path, text in script.files.items()},
                immutable=True,
                opts=child,
            )
            placement = replace(placement, script=script.config_map(spec.name), script_paths=script.paths)
            dependencies = [*dependencies, config_map]
        if spec.secrets:
            secret = Secret(
                f"{name}-secrets",
                metadata=secondary_metadata(spec, placement, secret_name(spec.name), {}),
                string_data={variable: args.secrets[variable] for variable in spec.secrets},
                opts=child,
            )
            dependencies = [*dependencies, secret]
        if spec.rendezvous_backend == "etcd":
            _render_etcd(name, spec, placement, child)
        render = KINDS[spec.kind].render
        self.name = render(name, spec, placement, pulumi.ResourceOptions(parent=self, depends_on=dependencies))
        self.register_outputs({"name": self.name})


ETCD_DATA = "/var/lib/etcd"


def _render_etcd(name: str, spec: JobSpec, placement: Placement, opts: pulumi.ResourceOptions) -> None:
    """Create a Deployment of etcd with one replica, and its Service. The data is lost with the pod.

    Enable etcd's v2 API, which torchrun uses: https://github.com/pytorch/pytorch/issues/158326.
    """
    # Import these types here, because the import takes 0.1 s and most jobs do not use etcd.
    from pulumi_kubernetes.apps.v1 import Deployment, DeploymentSpecArgs, DeploymentStrategyArgs

    # Omit the job label: `make up` and `make status` treat pods with it as hosts of the job.
    labels = {key: value for key, value in job_labels(spec.name, spec.recipe).items() if key != JOB_LABEL}
    selector = {"app.kubernetes.io/instance": spec.name, COMPONENT_LABEL: "rendezvous"}
    meta = ObjectMetaArgs(name=etcd_name(spec), namespace=placement.namespace, labels=labels, annotations=SKIP_AWAIT)
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
                metadata=ObjectMetaArgs(labels={**labels, **selector}, annotations=KEEP_ON_NODE),
                spec=_etcd_pod(spec, placement),
            ),
        ),
        opts=opts,
    )


def _etcd_pod(spec: JobSpec, placement: Placement) -> PodSpecArgs:
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
                    f"--data-dir={ETCD_DATA}",
                    f"--listen-client-urls=http://0.0.0.0:{ETCD_PORT}",
                    f"--advertise-client-urls={address}",
                    "--enable-v2=true",
                ],
                resources=fixed_resources(COORDINATOR),
                security_context=CONTAINER_SECURITY,
                readiness_probe=port_probe(ETCD_PORT),
                volume_mounts=[VolumeMountArgs(name="data", mount_path=ETCD_DATA)],
            )
        ],
        volumes=[VolumeArgs(name="data", empty_dir=EmptyDirVolumeSourceArgs())],
    )
