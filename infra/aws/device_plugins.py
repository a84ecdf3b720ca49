"""DevicePlugins: what tells Kubernetes of the GPUs and the fabric adapters of nodes; the image of EKS has neither."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
from pulumi_kubernetes.apps.v1 import DaemonSet, DaemonSetSpecArgs
from pulumi_kubernetes.core.v1 import (
    AffinityArgs,
    CapabilitiesArgs,
    ContainerArgs,
    EnvVarArgs,
    HostPathVolumeSourceArgs,
    NodeAffinityArgs,
    NodeSelectorArgs,
    NodeSelectorRequirementArgs,
    NodeSelectorTermArgs,
    PodSpecArgs,
    PodTemplateSpecArgs,
    ResourceRequirementsArgs,
    SecurityContextArgs,
    TolerationArgs,
    VolumeArgs,
    VolumeMountArgs,
)
from pulumi_kubernetes.meta.v1 import LabelSelectorArgs, ObjectMetaArgs

from infra.naming import ACCELERATOR_LABEL, stack_labels

NVIDIA_IMAGE = "nvcr.io/nvidia/k8s-device-plugin:v0.18.0"
"""https://github.com/NVIDIA/k8s-device-plugin"""
EFA_IMAGE = "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.7"
"""https://github.com/aws/eks-charts/tree/master/stable/aws-efa-k8s-device-plugin"""
NAMESPACE = "kube-system"
PLUGIN_FOLDER = "/var/lib/kubelet/device-plugins"


@dataclass(frozen=True, kw_only=True)
class DevicePluginsArgs:
    """Which plugins are needed."""

    gpus: bool
    """Whether some nodes have GPUs."""
    efa: bool
    """Whether some nodes have fabric adapters."""


class DevicePlugins(pulumi.ComponentResource):
    """A daemon for each kind of device, on the nodes that have GPUs."""

    def __init__(self, name: str, args: DevicePluginsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:aws:DevicePlugins", name, None, opts)
        if args.gpus:
            self._daemon(f"{name}-nvidia", "nvidia-device-plugin", NVIDIA_IMAGE)
        if args.efa:
            self._daemon(f"{name}-efa", "efa-device-plugin", EFA_IMAGE)
        self.register_outputs({})

    def _daemon(self, name: str, daemon: str, image: str) -> None:
        labels = {**stack_labels(), "app.kubernetes.io/name": daemon}
        container = ContainerArgs(
            name=daemon,
            image=image,
            env=[EnvVarArgs(name="FAIL_ON_INIT_ERROR", value="false")],
            security_context=SecurityContextArgs(
                allow_privilege_escalation=False, capabilities=CapabilitiesArgs(drop=["ALL"])
            ),
            resources=ResourceRequirementsArgs(requests={"cpu": "10m", "memory": "32Mi"}, limits={"memory": "256Mi"}),
            volume_mounts=[VolumeMountArgs(name="plugins", mount_path=PLUGIN_FOLDER)],
        )
        DaemonSet(
            name,
            # Nodes of GPUs may come an hour later, or from zero: nothing is gained by waiting for them.
            metadata=ObjectMetaArgs(
                name=daemon, namespace=NAMESPACE, labels=labels, annotations={"pulumi.com/skipAwait": "true"}
            ),
            spec=DaemonSetSpecArgs(
                selector=LabelSelectorArgs(match_labels={"app.kubernetes.io/name": daemon}),
                template=PodTemplateSpecArgs(
                    metadata=ObjectMetaArgs(labels=labels),
                    spec=PodSpecArgs(
                        priority_class_name="system-node-critical",
                        host_network=daemon.startswith("efa"),
                        tolerations=[TolerationArgs(operator="Exists")],
                        affinity=_on_nodes_with_gpus(),
                        containers=[container],
                        volumes=[VolumeArgs(name="plugins", host_path=HostPathVolumeSourceArgs(path=PLUGIN_FOLDER))],
                    ),
                ),
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )


def _on_nodes_with_gpus() -> AffinityArgs:
    labelled = NodeSelectorRequirementArgs(key=ACCELERATOR_LABEL, operator="Exists")
    terms = [NodeSelectorTermArgs(match_expressions=[labelled])]
    return AffinityArgs(
        node_affinity=NodeAffinityArgs(
            required_during_scheduling_ignored_during_execution=NodeSelectorArgs(node_selector_terms=terms)
        )
    )
