"""DevicePlugins: daemons that report a node's GPUs and EFA adapters to the kubelet. The EKS image lacks them."""

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

from infra.naming import ACCELERATOR_LABEL, POOL_LABEL, stack_labels

NAMESPACE = "kube-system"


@dataclass(frozen=True, kw_only=True)
class DevicePlugin:
    """Device plugin, with its folders and privileges on a node."""

    name: str
    """Name of the DaemonSet."""
    image: str
    """Image with its tag."""
    folders: dict[str, str]
    """Folder of the node for each volume, mounted at the same path."""
    privileged: bool = False
    """True if the plugin runs privileged, with the node's network."""


NVIDIA = DevicePlugin(
    name="nvidia-device-plugin",
    image="nvcr.io/nvidia/k8s-device-plugin:v0.18.0",
    folders={"plugins": "/var/lib/kubelet/device-plugins"},
)
"""NVIDIA's device plugin: https://github.com/NVIDIA/k8s-device-plugin"""
EFA = DevicePlugin(
    name="efa-device-plugin",
    image="602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.20",
    folders={"plugins": "/var/lib/kubelet/device-plugins", "infiniband": "/dev/infiniband"},
    privileged=True,
)
"""AWS's EFA device plugin, with the settings of chart 0.5.30.

Source: aws/eks-charts 5239609, stable/aws-efa-k8s-device-plugin values.yaml:5-9 and templates/daemonset.yaml:64-88.
Without /dev/infiniband the plugin finds no adapter (7248e07, pull request 1069). AWS runs it privileged since 49a034a.
The chart also mounts /opt/aws/neuron, which only Trainium and Inferentia nodes have.
"""


@dataclass(frozen=True, kw_only=True)
class DevicePluginsArgs:
    """Inputs of `DevicePlugins`."""

    gpus: bool
    """True if some nodes have GPUs."""
    efa_pools: tuple[str, ...]
    """Pools whose nodes have fabric adapters."""


class DevicePlugins(pulumi.ComponentResource):
    """Daemons for each kind of device, on the nodes that have it."""

    def __init__(self, name: str, args: DevicePluginsArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:aws:DevicePlugins", name, None, opts)
        if args.gpus:
            nodes = NodeSelectorRequirementArgs(key=ACCELERATOR_LABEL, operator="Exists")
            self._daemon(f"{name}-nvidia", NVIDIA, nodes)
        if args.efa_pools:
            nodes = NodeSelectorRequirementArgs(key=POOL_LABEL, operator="In", values=list(args.efa_pools))
            self._daemon(f"{name}-efa", EFA, nodes)
        self.register_outputs({})

    def _daemon(self, name: str, plugin: DevicePlugin, nodes: NodeSelectorRequirementArgs) -> None:
        """Run a plugin on each of the selected nodes."""
        labels = {**stack_labels(), "app.kubernetes.io/name": plugin.name}
        container = ContainerArgs(
            name=plugin.name,
            image=plugin.image,
            env=[EnvVarArgs(name="FAIL_ON_INIT_ERROR", value="false")],
            security_context=_security_context(plugin),
            resources=ResourceRequirementsArgs(requests={"cpu": "10m", "memory": "32Mi"}, limits={"memory": "256Mi"}),
            volume_mounts=[VolumeMountArgs(name=volume, mount_path=path) for volume, path in plugin.folders.items()],
        )
        volumes = [
            VolumeArgs(name=volume, host_path=HostPathVolumeSourceArgs(path=path))
            for volume, path in plugin.folders.items()
        ]
        DaemonSet(
            name,
            # Do not wait: GPU nodes can start an hour later, and no resource depends on this DaemonSet.
            metadata=ObjectMetaArgs(
                name=plugin.name, namespace=NAMESPACE, labels=labels, annotations={"pulumi.com/skipAwait": "true"}
            ),
            spec=DaemonSetSpecArgs(
                selector=LabelSelectorArgs(match_labels={"app.kubernetes.io/name": plugin.name}),
                template=PodTemplateSpecArgs(
                    metadata=ObjectMetaArgs(labels=labels),
                    spec=PodSpecArgs(
                        priority_class_name="system-node-critical",
                        automount_service_account_token=False,
                        host_network=plugin.privileged,
                        tolerations=[TolerationArgs(operator="Exists")],
                        affinity=_affinity(nodes),
                        containers=[container],
                        volumes=volumes,
                    ),
                ),
            ),
            opts=pulumi.ResourceOptions(parent=self),
        )


def _security_context(plugin: DevicePlugin) -> SecurityContextArgs:
    """Return the security context of a plugin's container."""
    if plugin.privileged:
        return SecurityContextArgs(privileged=True, run_as_user=0)
    return SecurityContextArgs(allow_privilege_escalation=False, capabilities=CapabilitiesArgs(drop=["ALL"]))


def _affinity(nodes: NodeSelectorRequirementArgs) -> AffinityArgs:
    """Return the node affinity for the selected nodes."""
    terms = [NodeSelectorTermArgs(match_expressions=[nodes])]
    return AffinityArgs(
        node_affinity=NodeAffinityArgs(
            required_during_scheduling_ignored_during_execution=NodeSelectorArgs(node_selector_terms=terms)
        )
    )
