"""LocalCluster component: the Kubernetes cluster on this machine, for platform `local`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi import dynamic

from infra.local.provider import LocalClusterProvider, NodeImagesProvider


@dataclass(frozen=True, kw_only=True)
class LocalClusterArgs:
    """Arguments of a local cluster."""

    owner: str
    """Folder of the checkout that owns the cluster."""
    stack: str
    """Name of the stack that owns the cluster."""
    name: pulumi.Input[str] = "local"
    """Prefix of the nodes' names, and name of the cluster in kubeconfigs."""
    nodes: pulumi.Input[int] = 2
    """Number of nodes."""
    port: pulumi.Input[int] = 0
    """Port on 127.0.0.1 for the API server; 0 chooses a free one."""
    images: pulumi.Input[Sequence[str]] = ()
    """References of the images that every node must have."""
    layers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Reference -> inputs of the layer (layer_inputs) of each of these images that has one."""


class _ClusterProcesses(dynamic.Resource):
    """Processes of the cluster, started and stopped by LocalClusterProvider."""

    uid: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    kubeconfig_path: pulumi.Output[str]
    bucket_path: pulumi.Output[str]
    node_names: pulumi.Output[list[str]]

    def __init__(self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        outputs = ("uid", "kubeconfig", "kubeconfig_path", "bucket_path", "node_names")
        super().__init__(LocalClusterProvider(), name, {**props, **dict.fromkeys(outputs)}, opts)


class _NodeImages(dynamic.Resource):
    """Images of the nodes, loaded by NodeImagesProvider."""

    def __init__(self, name: str, props: dict[str, Any], opts: pulumi.ResourceOptions) -> None:
        super().__init__(NodeImagesProvider(), name, props, opts)


class LocalCluster(pulumi.ComponentResource):
    """Kubernetes cluster on this machine. Each node has its own network namespace, kubelet and containerd."""

    kubeconfig: pulumi.Output[str]
    """Kubeconfig of the administrator (secret)."""
    kubeconfig_path: pulumi.Output[str]
    """Path of the same kubeconfig on this machine, readable only by its owner."""
    uid: pulumi.Output[str]
    """Id of the cluster's data. It changes only after a loss of all data."""
    bucket_path: pulumi.Output[str]
    """Folder of this machine that pods mount as their bucket."""
    node_names: pulumi.Output[list[str]]
    """Names of the nodes in order."""
    processes: dynamic.Resource
    """Resource whose deletion ends everything in the cluster. Pass it as `deleted_with`."""
    images: dynamic.Resource
    """Resource that exists once every node has its images. Resources that start pods depend on it."""

    def __init__(self, name: str, args: LocalClusterArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:local:LocalCluster", name, None, opts)
        settings = {
            "owner": args.owner,
            "stack": args.stack,
            "name": args.name,
            "nodes": args.nodes,
            "port": args.port,
        }
        processes = _ClusterProcesses(
            f"{name}-processes",
            settings,
            pulumi.ResourceOptions(
                parent=self,
                additional_secret_outputs=["kubeconfig"],
                custom_timeouts=pulumi.CustomTimeouts(create="15m", update="15m", delete="5m"),
            ),
        )
        self.processes = processes
        self.images = _NodeImages(
            f"{name}-images",
            {**settings, "images": args.images, **({"layers": args.layers} if args.layers else {})},
            pulumi.ResourceOptions(
                parent=self,
                depends_on=[processes],
                deleted_with=processes,
                custom_timeouts=pulumi.CustomTimeouts(create="15m", update="15m"),
            ),
        )
        self.kubeconfig = processes.kubeconfig
        self.kubeconfig_path = processes.kubeconfig_path
        self.uid = processes.uid
        self.bucket_path = processes.bucket_path
        self.node_names = processes.node_names
        self.register_outputs(
            {
                "kubeconfig": self.kubeconfig,
                "kubeconfig_path": self.kubeconfig_path,
                "uid": self.uid,
                "bucket_path": self.bucket_path,
                "node_names": self.node_names,
            }
        )
