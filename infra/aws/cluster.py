"""EksCluster: control plane. ServiceRole: IAM role for an AWS service. WorkloadIdentity: IAM role of the jobs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
from pulumi_aws import cloudwatch, eks, iam, kms

from infra.aws.config import Addon, EksConfig
from infra.aws.inventory import cluster_log_group
from infra.kubeconfig import one_context

TIMEOUTS = pulumi.CustomTimeouts(create="45m", update="90m", delete="30m")
LOG_TYPES = ("api", "audit", "authenticator", "controllerManager", "scheduler")
MONITORING_AGENT_VALUES = json.dumps({"dcgmAgent": {"tolerations": [{"operator": "Exists"}]}})
"""Settings of the node monitoring agent. They let its GPU pods run on tainted nodes.

By default these pods have no tolerations. The agent then reports each GPU node as unhealthy (DCGMError):
aws/eks-node-monitoring-agent charts/eks-node-monitoring-agent/values.yaml:158, configuration.schema.json:138.
"""
ADMIN_POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
"""Access policy of administrators: https://docs.aws.amazon.com/eks/latest/userguide/access-policy-permissions.html"""


class EksCluster(pulumi.ComponentResource):
    """EKS cluster without node groups. It includes the add-ons that nodes need at startup."""

    name: pulumi.Output[str]
    """Name of the cluster, known once nodes can join it."""
    version: pulumi.Output[str]
    """Minor version of Kubernetes, known once the control plane runs it."""
    security_group: pulumi.Output[str]
    """Security group of the control plane and all nodes. It allows all traffic between them."""
    kubeconfig: pulumi.Output[str]
    """Kubeconfig without credentials. `aws eks get-token` supplies them."""
    control_plane: eks.Cluster
    """Control plane resource. Its deletion deletes all Kubernetes objects in the cluster."""

    def __init__(
        self,
        name: str,
        *,
        config: EksConfig,
        private_subnets: Mapping[str, pulumi.Output[str]],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("trainyard:aws:EksCluster", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        role = ServiceRole(
            f"{name}-control-plane", service="eks.amazonaws.com", policies=["AmazonEKSClusterPolicy"], opts=child
        )
        key = kms.Key(
            f"{name}-secrets",
            description=f"Kubernetes secrets of the EKS cluster {config.name}",
            enable_key_rotation=True,
            deletion_window_in_days=7,
            tags={"Name": f"{config.name}-secrets"},
            opts=child,
        )
        logs = cloudwatch.LogGroup(
            f"{name}-logs", name=cluster_log_group(config.name), retention_in_days=config.log_days, opts=child
        )
        self.control_plane = eks.Cluster(
            f"{name}-eks",
            _cluster_args(config, list(private_subnets.values()), role.arn, key.arn),
            # Create the log group first. Otherwise EKS creates it without an expiry.
            opts=pulumi.ResourceOptions(parent=self, depends_on=[logs], custom_timeouts=TIMEOUTS),
        )
        self._addon_versions = config.addon_versions
        startup_addons = [
            self._addon(name, "vpc-cni", "aws-node", "AmazonEKS_CNI_Policy"),
            self._addon(name, "kube-proxy"),
            self._addon(name, "eks-pod-identity-agent"),
        ]
        self._admins(name, config)
        self.name = pulumi.Output.all(self.control_plane.name, *(addon.id for addon in startup_addons)).apply(
            lambda values: str(values[0])
        )
        self.version = self.control_plane.version
        self.security_group = self.control_plane.vpc_config.apply(lambda vpc: str(vpc.cluster_security_group_id))
        self.kubeconfig = pulumi.Output.json_dumps(_kubeconfig(config, self.control_plane))
        self.register_outputs({"name": self.name, "security_group": self.security_group, "kubeconfig": self.kubeconfig})

    def add_workload_addons(self, name: str, nodes: pulumi.Resource) -> None:
        """Install the add-ons whose pods need nodes."""
        self._addon(name, "coredns", after=nodes)
        self._addon(name, "eks-node-monitoring-agent", after=nodes, values=MONITORING_AGENT_VALUES)
        self._addon(name, "aws-ebs-csi-driver", "ebs-csi-controller-sa", "service-role/AmazonEBSCSIDriverPolicy", nodes)

    def _addon(
        self,
        name: str,
        addon: Addon,
        service_account: str | None = None,
        policy: str | None = None,
        after: pulumi.Resource | None = None,
        values: str | None = None,
    ) -> eks.Addon:
        """Install an EKS add-on. Create an IAM role for its service account if `policy` is set.

        AWS chooses the version if the settings do not.
        """
        identities = None
        if service_account and policy:
            role = ServiceRole(
                f"{name}-{addon}", service=POD_SERVICE, policies=[policy], opts=pulumi.ResourceOptions(parent=self)
            )
            identities = [eks.AddonPodIdentityAssociationArgs(role_arn=role.arn, service_account=service_account)]
        return eks.Addon(
            f"{name}-addon-{addon}",
            cluster_name=self.control_plane.name,
            addon_name=addon,
            addon_version=self._addon_versions.get(addon),
            configuration_values=values,
            resolve_conflicts_on_create="OVERWRITE",
            resolve_conflicts_on_update="OVERWRITE",
            pod_identity_associations=identities,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[after] if after else None),
        )

    def _admins(self, name: str, config: EksConfig) -> None:
        """Create access entries for the administrators of the cluster.

        The name of each resource contains the principal. With numbered names, the removal of an administrator would
        change the ARNs of later resources. EKS would then reject a second entry for an ARN:
        https://docs.aws.amazon.com/eks/latest/APIReference/API_CreateAccessEntry.html
        """
        for index, principal in enumerate(config.admins):
            entry_name, old_name = f"{name}-admin-{principal_name(principal)}", f"{name}-admin-{index}"
            entry = eks.AccessEntry(
                entry_name,
                cluster_name=self.control_plane.name,
                principal_arn=principal,
                type="STANDARD",
                opts=pulumi.ResourceOptions(parent=self, aliases=[pulumi.Alias(name=old_name)]),
            )
            eks.AccessPolicyAssociation(
                f"{entry_name}-policy",
                cluster_name=self.control_plane.name,
                principal_arn=entry.principal_arn,
                policy_arn=ADMIN_POLICY,
                access_scope=eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
                opts=pulumi.ResourceOptions(parent=self, aliases=[pulumi.Alias(name=f"{old_name}-policy")]),
            )


def principal_name(arn: str) -> str:
    """Return a resource name for an IAM principal: account, kind and path, such as `123456789012-role/team`."""
    *_, account, resource = arn.split(":")
    return f"{account}-{resource}"


def context_name(config: EksConfig) -> str:
    """Return the name of the context in the kubeconfig."""
    return f"eks_{config.region}_{config.name}"


def _cluster_args(
    config: EksConfig, subnets: list[pulumi.Output[str]], role: pulumi.Output[str], key: pulumi.Output[str]
) -> eks.ClusterArgs:
    return eks.ClusterArgs(
        name=config.name,
        role_arn=role,
        version=config.kubernetes_version,
        deletion_protection=config.deletion_protection,
        upgrade_policy=eks.ClusterUpgradePolicyArgs(support_type="STANDARD"),
        bootstrap_self_managed_addons=False,
        access_config=eks.ClusterAccessConfigArgs(
            authentication_mode="API", bootstrap_cluster_creator_admin_permissions=True
        ),
        encryption_config=eks.ClusterEncryptionConfigArgs(
            provider=eks.ClusterEncryptionConfigProviderArgs(key_arn=key), resources=["secrets"]
        ),
        enabled_cluster_log_types=list(LOG_TYPES),
        kubernetes_network_config=eks.ClusterKubernetesNetworkConfigArgs(
            ip_family="ipv4", service_ipv4_cidr=config.network.services
        ),
        vpc_config=eks.ClusterVpcConfigArgs(
            subnet_ids=subnets,
            endpoint_private_access=True,
            endpoint_public_access=bool(config.authorized_networks),
            public_access_cidrs=list(config.authorized_networks) or None,
        ),
    )


def _kubeconfig(config: EksConfig, cluster: eks.Cluster) -> dict[str, Any]:
    """Return the kubeconfig: https://docs.aws.amazon.com/eks/latest/userguide/create-kubeconfig.html"""
    authority = cluster.certificate_authority.apply(lambda ca: ca.data)
    command = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "aws",
        "args": ["--region", config.region, "eks", "get-token", "--cluster-name", config.name, "--output", "json"],
        "interactiveMode": "IfAvailable",
    }
    access = {"server": cluster.endpoint, "certificate-authority-data": authority}
    return one_context(context_name(config), access, {"exec": command})


MANAGED_POLICY_PREFIX = "arn:aws:iam::aws:policy"
POD_SERVICE = "pods.eks.amazonaws.com"
"""Service principal of EKS Pod Identity: https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html"""


class ServiceRole(pulumi.ComponentResource):
    """Role for one AWS service."""

    arn: pulumi.Output[str]
    """ARN of the role, known once its policies are attached."""

    def __init__(
        self, name: str, *, service: str, policies: Sequence[str] = (), opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("trainyard:aws:ServiceRole", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        role = iam.Role(f"{name}-role", assume_role_policy=trust_policy(service), opts=child)
        attachments = [
            iam.RolePolicyAttachment(
                f"{name}-{policy.rpartition('/')[2]}",
                role=role.name,
                policy_arn=f"{MANAGED_POLICY_PREFIX}/{policy}",
                opts=child,
            ).id
            for policy in policies
        ]
        self.arn = pulumi.Output.all(role.arn, *attachments).apply(lambda values: str(values[0]))
        self.register_outputs({"arn": self.arn})


def trust_policy(service: str) -> str:
    """Return the trust policy of a role for a service. Pod Identity also tags sessions with the pod's namespace."""
    actions = ["sts:AssumeRole", "sts:TagSession"] if service == POD_SERVICE else ["sts:AssumeRole"]
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": actions}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


class WorkloadIdentity(pulumi.ComponentResource):
    """IAM role that jobs get through EKS Pod Identity. It allows access only to the jobs' prefix of the bucket."""

    ready: pulumi.Output[str]
    """Id of the pod identity association, known once jobs have the role."""

    def __init__(
        self,
        name: str,
        *,
        cluster: pulumi.Input[str],
        namespace: str,
        service_account: str,
        bucket_arn: pulumi.Input[str],
        prefix: str,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("trainyard:aws:WorkloadIdentity", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        role = iam.Role(f"{name}-role", assume_role_policy=trust_policy(POD_SERVICE), opts=child)
        policy = iam.RolePolicy(f"{name}-bucket", role=role.name, policy=bucket_policy(bucket_arn, prefix), opts=child)
        association = eks.PodIdentityAssociation(
            f"{name}-association",
            cluster_name=cluster,
            namespace=namespace,
            service_account=service_account,
            role_arn=role.arn,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[policy]),
        )
        self.ready = association.id
        self.register_outputs({"ready": self.ready})


def bucket_policy(bucket_arn: pulumi.Input[str], prefix: str) -> pulumi.Output[str]:
    """Return a policy to read, write, delete and list below the prefix."""
    objects = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    prefix_condition = {"StringLike": {"s3:prefix": [prefix, f"{prefix}/*"]}}
    return pulumi.Output.json_dumps(
        {
            "Version": "2012-10-17",
            "Statement": [
                {"Effect": "Allow", "Action": objects, "Resource": pulumi.Output.concat(bucket_arn, f"/{prefix}/*")},
                {"Effect": "Allow", "Action": "s3:ListBucket", "Resource": bucket_arn, "Condition": prefix_condition},
            ],
        }
    )
