"""Platform `eks`: components in the cloud, then components inside the cluster, such as the nodes' device plugins."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws
import pulumi_kubernetes
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

from infra.aws.cluster import EksCluster, ServiceRole, WorkloadIdentity, context_name
from infra.aws.config import EksConfig
from infra.aws.network import Network
from infra.aws.node_pool import NodeGroup, NodeGroupArgs
from infra.aws.pools import NodeGroupPlan, node_groups
from infra.aws.storage import CheckpointBucket, ImageRepository
from infra.cloud_image import CloudImages
from infra.hardware.ec2 import ec2_machine
from infra.kubeconfig import PROVIDER_ENVIRONMENT
from infra.naming import ACCELERATOR_LABEL, POOL_LABEL, cloud_labels, stack_labels
from infra.platform import SERVICE_ACCOUNT, Platform, TrainingNamespace, TrainingNamespaceArgs, kubeconfig_path

NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly")
"""Managed policies of the nodes' role: https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html

AmazonEKSWorkerNodeMinimalPolicy is for Auto Mode. It lacks ec2:DescribeInstances, which nodeadm calls for the node's
name before the kubelet starts: awslabs/amazon-eks-ami nodeadm/internal/api/status.go:28.
"""


@dataclass(frozen=True, kw_only=True)
class EksComponents:
    """Cloud components that the rest of the platform uses."""

    cluster: EksCluster
    system: NodeGroup
    """Nodes for system pods. Resources in the cluster wait for these nodes."""
    groups: list[NodeGroupPlan]
    identity: WorkloadIdentity
    bucket: CheckpointBucket
    repository: ImageRepository | None
    """Repository of the trainer image, or None if the image is prebuilt."""


def build_components(config: EksConfig) -> EksComponents:
    """Provision all cloud components. Return the components that the rest of the platform uses."""
    aws = pulumi_aws.Provider(
        "aws",
        region=config.region,
        allowed_account_ids=None if config.account is None else [config.account],
        default_tags=pulumi_aws.ProviderDefaultTagsArgs(tags=cloud_labels(config.cluster_label)),
    )
    options = pulumi.ResourceOptions(providers={"aws": aws})
    network = Network("network", config=config, opts=options)
    cluster = EksCluster("cluster", config=config, private_subnets=network.private_subnets, opts=options)
    role = ServiceRole("nodes", service="ec2.amazonaws.com", policies=NODE_POLICIES, opts=options)
    system = _system_nodes(config, network, cluster, role, options)
    cluster.add_workload_addons("cluster", system)
    groups = node_groups(config)
    for plan in groups:
        _job_nodes(config, plan, network, cluster, role, system, options)
    bucket = CheckpointBucket("bucket", cluster=config.name, config=config.bucket, opts=options)
    identity = WorkloadIdentity(
        "jobs",
        cluster=cluster.name,
        namespace=config.namespace,
        service_account=SERVICE_ACCOUNT,
        bucket_arn=bucket.arn,
        prefix=config.bucket.prefix,
        opts=options,
    )
    repository = None
    if config.image.prebuilt is None:
        name = f"{config.name}/{config.image.name}"
        repository = ImageRepository("registry", repository=name, config=config.registry, opts=options)
    return EksComponents(
        cluster=cluster, system=system, groups=groups, identity=identity, bucket=bucket, repository=repository
    )


def _system_nodes(
    config: EksConfig, network: Network, cluster: EksCluster, role: ServiceRole, options: pulumi.ResourceOptions
) -> NodeGroup:
    return NodeGroup(
        "system",
        NodeGroupArgs(
            cluster=cluster.name,
            version=cluster.version,
            config=config,
            machine=ec2_machine(config.system_pool.machine_type),
            nodes=config.system_pool.nodes,
            subnets=list(network.private_subnets.values()),
            security_group=cluster.security_group,
            role=role.arn,
            pool="system",
        ),
        options,
    )


def _job_nodes(
    config: EksConfig,
    plan: NodeGroupPlan,
    network: Network,
    cluster: EksCluster,
    role: ServiceRole,
    system: NodeGroup,
    options: pulumi.ResourceOptions,
) -> NodeGroup:
    return NodeGroup(
        plan.name,
        NodeGroupArgs(
            cluster=cluster.name,
            version=cluster.version,
            config=config,
            machine=plan.machine,
            nodes=plan.nodes,
            subnets=[network.private_subnets[zone] for zone in plan.zones],
            security_group=cluster.security_group,
            role=role.arn,
            pool=plan.name,
            plan=plan,
            # If the system nodes get no capacity, the update fails before expensive nodes start.
            after=system,
        ),
        options,
    )


PLUGIN_NAMESPACE = "kube-system"


@dataclass(frozen=True, kw_only=True)
class DevicePlugin:
    """Device plugin, with its folders and privileges on a node."""

    name: str
    """Name of the DaemonSet."""
    image: str
    folders: dict[str, str]
    """Volume -> folder of the node, mounted at the same path."""
    privileged: bool = False
    """True if the plugin runs privileged, with the node's network."""


NVIDIA_PLUGIN = DevicePlugin(
    name="nvidia-device-plugin",
    image="nvcr.io/nvidia/k8s-device-plugin:v0.18.0",
    folders={"plugins": "/var/lib/kubelet/device-plugins"},
)
"""NVIDIA's device plugin: https://github.com/NVIDIA/k8s-device-plugin"""
EFA_PLUGIN = DevicePlugin(
    name="efa-device-plugin",
    image="602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.20",
    folders={"plugins": "/var/lib/kubelet/device-plugins", "infiniband": "/dev/infiniband"},
    privileged=True,
)
"""AWS's EFA device plugin, with the settings of chart 0.5.30.

Source: aws/eks-charts 5239609, stable/aws-efa-k8s-device-plugin values.yaml:5-9 and templates/daemonset.yaml:64-88.
Without /dev/infiniband the plugin finds no adapter (7248e07, pull request 1069). Since 49a034a, the chart runs the
plugin privileged. The chart also mounts /opt/aws/neuron, which only Trainium and Inferentia nodes have.
"""


class DevicePlugins(pulumi.ComponentResource):
    """DaemonSet of each device plugin, on the nodes with such devices."""

    def __init__(
        self, name: str, *, gpus: bool, efa_pools: list[str], opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:aws:DevicePlugins", name, None, opts)
        if gpus:
            nodes = NodeSelectorRequirementArgs(key=ACCELERATOR_LABEL, operator="Exists")
            self._daemon(f"{name}-nvidia", NVIDIA_PLUGIN, nodes)
        if efa_pools:
            nodes = NodeSelectorRequirementArgs(key=POOL_LABEL, operator="In", values=efa_pools)
            self._daemon(f"{name}-efa", EFA_PLUGIN, nodes)
        self.register_outputs({})

    def _daemon(self, name: str, plugin: DevicePlugin, nodes: NodeSelectorRequirementArgs) -> None:
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
                name=plugin.name,
                namespace=PLUGIN_NAMESPACE,
                labels=labels,
                annotations={"pulumi.com/skipAwait": "true"},
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
    if plugin.privileged:
        return SecurityContextArgs(privileged=True, run_as_user=0)
    return SecurityContextArgs(allow_privilege_escalation=False, capabilities=CapabilitiesArgs(drop=["ALL"]))


def _affinity(nodes: NodeSelectorRequirementArgs) -> AffinityArgs:
    terms = [NodeSelectorTermArgs(match_expressions=[nodes])]
    return AffinityArgs(
        node_affinity=NodeAffinityArgs(
            required_during_scheduling_ignored_during_execution=NodeSelectorArgs(node_selector_terms=terms)
        )
    )


def build_eks(config: EksConfig) -> Platform:
    """Provision the components in the cloud and inside the cluster. Return the platform."""
    cloud = build_components(config)
    control_plane = cloud.cluster.control_plane
    provider = pulumi_kubernetes.Provider(
        "kubernetes",
        kubeconfig=cloud.cluster.kubeconfig,
        cluster_identifier=control_plane.arn,
        opts=pulumi.ResourceOptions(
            depends_on=[cloud.system], deleted_with=control_plane, env_var_mappings=PROVIDER_ENVIRONMENT
        ),
    )
    in_cluster = pulumi.ResourceOptions(providers={"kubernetes": provider}, deleted_with=control_plane)
    DevicePlugins(
        "device-plugins",
        gpus=any(plan.machine.gpus for plan in cloud.groups),
        efa_pools=[plan.name for plan in cloud.groups if plan.efa],
        opts=in_cluster,
    )
    return _platform(config, cloud, provider, in_cluster)


def _platform(
    config: EksConfig,
    cloud: EksComponents,
    provider: pulumi_kubernetes.Provider,
    in_cluster: pulumi.ResourceOptions,
) -> Platform:
    """Create the jobs' namespace. Return the platform."""
    training = TrainingNamespace("training", TrainingNamespaceArgs(namespace=config.namespace), in_cluster)
    url = pulumi.Output.all(cloud.bucket.name, cloud.identity.ready).apply(
        lambda values: f"s3://{values[0]}/{config.bucket.prefix}"
    )
    context = context_name(config)
    path = kubeconfig_path(context)
    return Platform(
        provider=provider,
        namespace=training.namespace,
        service_account=training.service_account,
        image=CloudImages(cloud.repository.url if cloud.repository else "", config.image).reference,
        bucket_url=url,
        bucket_claim=None,
        bucket_location=url,
        kubectl=pulumi.Output.concat(f"kubectl --kubeconfig {path} -n ", training.namespace),
        kubeconfig_path=path,
        context=context,
        get_kubeconfig=f"aws eks update-kubeconfig --region {config.region} --name {config.name}",
        console=_console(config),
        kubeconfig=pulumi.Output.secret(cloud.cluster.kubeconfig),
        deleted_with=cloud.cluster.control_plane,
    )


def _console(config: EksConfig) -> dict[str, str]:
    base = f"https://{config.region}.console.aws.amazon.com"
    return {
        "cluster": f"{base}/eks/home?region={config.region}#/clusters/{config.name}",
        "logs": f"{base}/cloudwatch/home?region={config.region}#logsV2:log-groups",
        "quotas": f"{base}/servicequotas/home?region={config.region}",
    }
