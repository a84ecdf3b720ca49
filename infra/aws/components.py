"""Cloud components of an EKS stack, in order of creation. The resources inside the cluster are in `platform.py`."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_aws

from infra.aws.cluster import EksCluster, EksClusterArgs
from infra.aws.config import EksConfig
from infra.aws.identity import ServiceRole, ServiceRoleArgs, WorkloadIdentity, WorkloadIdentityArgs
from infra.aws.network import Network, NetworkArgs
from infra.aws.node_pool import NodeGroup, NodeGroupArgs
from infra.aws.pools import NodeGroupPlan, node_groups
from infra.aws.storage import CheckpointBucket, CheckpointBucketArgs, ImageRepository, ImageRepositoryArgs
from infra.hardware.ec2 import ec2_machine
from infra.namespace import SERVICE_ACCOUNT
from infra.naming import cloud_labels

NODE_POLICIES = ("AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly")
"""Managed policies of the nodes' role: https://docs.aws.amazon.com/eks/latest/userguide/create-node-role.html

AmazonEKSWorkerNodeMinimalPolicy is for Auto Mode. It lacks ec2:DescribeInstances, which nodeadm calls for the node's
name before the kubelet starts: awslabs/amazon-eks-ami nodeadm/internal/api/status.go:28.
"""


@dataclass(frozen=True, kw_only=True)
class EksComponents:
    """Cloud components that the rest of the platform uses."""

    cluster: EksCluster
    """The control plane."""
    system: NodeGroup
    """Nodes for pods other than jobs. Resources in the cluster wait for these nodes."""
    groups: list[NodeGroupPlan]
    """Plans of the node groups for jobs."""
    identity: WorkloadIdentity
    """Identity of the jobs."""
    bucket: CheckpointBucket
    """Bucket for checkpoints, metrics and profiles."""
    repository: ImageRepository | None
    """Repository of the trainer image, or None if the image is prebuilt."""


def build_components(config: EksConfig) -> EksComponents:
    """Provision all cloud components."""
    aws = pulumi_aws.Provider(
        "aws",
        region=config.region,
        allowed_account_ids=None if config.account is None else [config.account],
        default_tags=pulumi_aws.ProviderDefaultTagsArgs(tags=cloud_labels(config.cluster_label)),
    )
    options = pulumi.ResourceOptions(providers={"aws": aws})
    network = Network("network", NetworkArgs(config=config), options)
    cluster = EksCluster("cluster", EksClusterArgs(config=config, private_subnets=network.private_subnets), options)
    role = ServiceRole("nodes", ServiceRoleArgs(service="ec2.amazonaws.com", policies=NODE_POLICIES), options)
    system = _system_nodes(config, network, cluster, role, options)
    cluster.add_workload_addons("cluster", system)
    groups = node_groups(config)
    for plan in groups:
        _job_nodes(config, plan, network, cluster, role, system, options)
    bucket = CheckpointBucket("bucket", CheckpointBucketArgs(cluster=config.name, config=config.bucket), options)
    identity = WorkloadIdentity(
        "jobs",
        WorkloadIdentityArgs(
            cluster=cluster.name,
            namespace=config.namespace,
            service_account=SERVICE_ACCOUNT,
            bucket_arn=bucket.arn,
            prefix=config.bucket.prefix,
        ),
        options,
    )
    repository = None
    if config.image.prebuilt is None:
        args = ImageRepositoryArgs(name=f"{config.name}/{config.image.name}", config=config.registry)
        repository = ImageRepository("registry", args, options)
    return EksComponents(
        cluster=cluster, system=system, groups=groups, identity=identity, bucket=bucket, repository=repository
    )


def _system_nodes(
    config: EksConfig, network: Network, cluster: EksCluster, role: ServiceRole, options: pulumi.ResourceOptions
) -> NodeGroup:
    """Provision the nodes for pods other than jobs."""
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
    """Provision nodes for jobs."""
    return NodeGroup(
        plan.name,
        NodeGroupArgs(
            # Create the system nodes first: if they get no capacity, the update fails before expensive nodes start.
            cluster=pulumi.Output.all(cluster.name, system.ready).apply(lambda values: str(values[0])),
            version=cluster.version,
            config=config,
            machine=plan.machine,
            nodes=plan.nodes,
            subnets=[network.private_subnets[zone] for zone in plan.zones],
            security_group=cluster.security_group,
            role=role.arn,
            pool=plan.name,
            plan=plan,
        ),
        options,
    )
