"""ServiceRole and WorkloadIdentity: IAM roles of an AWS service and of the jobs' pods."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_aws import eks, iam

MANAGED_POLICY_PREFIX = "arn:aws:iam::aws:policy"
POD_SERVICE = "pods.eks.amazonaws.com"
"""Service principal of EKS Pod Identity: https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html"""


@dataclass(frozen=True, kw_only=True)
class ServiceRoleArgs:
    """Inputs of `ServiceRole`."""

    service: str
    """Service that may assume the role, such as `ec2.amazonaws.com`."""
    policies: Sequence[str] = ()
    """Names of the role's AWS managed policies."""


class ServiceRole(pulumi.ComponentResource):
    """Role for one AWS service."""

    arn: pulumi.Output[str]
    """ARN of the role, known after its policies are attached."""
    role_name: pulumi.Output[str]
    """Name of the role."""

    def __init__(self, name: str, args: ServiceRoleArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:aws:ServiceRole", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        role = iam.Role(f"{name}-role", assume_role_policy=trust_policy(args.service), opts=child)
        attachments = [
            iam.RolePolicyAttachment(
                f"{name}-{policy.rpartition('/')[2]}",
                role=role.name,
                policy_arn=f"{MANAGED_POLICY_PREFIX}/{policy}",
                opts=child,
            ).id
            for policy in args.policies
        ]
        self.arn = pulumi.Output.all(role.arn, *attachments).apply(lambda values: str(values[0]))
        self.role_name = role.name
        self.register_outputs({"arn": self.arn, "role_name": self.role_name})


def trust_policy(service: str) -> str:
    """Return the trust policy of a service. Pod Identity also tags sessions with namespace and service account."""
    actions = ["sts:AssumeRole", "sts:TagSession"] if service == POD_SERVICE else ["sts:AssumeRole"]
    statement = {"Effect": "Allow", "Principal": {"Service": service}, "Action": actions}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


@dataclass(frozen=True, kw_only=True)
class WorkloadIdentityArgs:
    """Inputs of `WorkloadIdentity`."""

    cluster: pulumi.Input[str]
    """Name of the cluster."""
    namespace: str
    """Kubernetes namespace of the jobs."""
    service_account: str
    """Kubernetes service account of the jobs."""
    bucket_arn: pulumi.Input[str]
    """ARN of the jobs' bucket."""
    prefix: str
    """Prefix of the jobs' objects in the bucket."""


class WorkloadIdentity(pulumi.ComponentResource):
    """IAM role of the jobs, through EKS Pod Identity. It allows access only to the jobs' prefix of the bucket."""

    ready: pulumi.Output[str]
    """Id of the pod identity association, known when jobs have the role."""

    def __init__(self, name: str, args: WorkloadIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:aws:WorkloadIdentity", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        role = iam.Role(f"{name}-role", assume_role_policy=trust_policy(POD_SERVICE), opts=child)
        policy = iam.RolePolicy(f"{name}-bucket", role=role.name, policy=bucket_policy(args), opts=child)
        association = eks.PodIdentityAssociation(
            f"{name}-association",
            cluster_name=args.cluster,
            namespace=args.namespace,
            service_account=args.service_account,
            role_arn=role.arn,
            opts=pulumi.ResourceOptions(parent=self, depends_on=[policy]),
        )
        self.ready = association.id
        self.register_outputs({"ready": self.ready})


def bucket_policy(args: WorkloadIdentityArgs) -> pulumi.Output[str]:
    """Return a policy to read, write, delete and list below the prefix."""
    objects = ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"]
    prefix_condition = {"StringLike": {"s3:prefix": [f"{args.prefix}", f"{args.prefix}/*"]}}
    return pulumi.Output.json_dumps(
        {
            "Version": "2012-10-17",
            "Statement": [
                {
                    "Effect": "Allow",
                    "Action": objects,
                    "Resource": pulumi.Output.concat(args.bucket_arn, f"/{args.prefix}/*"),
                },
                {
                    "Effect": "Allow",
                    "Action": "s3:ListBucket",
                    "Resource": args.bucket_arn,
                    "Condition": prefix_condition,
                },
            ],
        }
    )
