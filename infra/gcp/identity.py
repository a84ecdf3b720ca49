"""NodeIdentity and WorkloadIdentity: service accounts of nodes and jobs with minimum roles."""

from __future__ import annotations

from dataclasses import dataclass

import pulumi
import pulumi_gcp as gcp

from infra.naming import fit_name

ACCOUNT_LIMIT = 30
"""Maximum length of a service account id: https://cloud.google.com/iam/docs/service-accounts-create"""
NODE_ROLE = "roles/container.defaultNodeServiceAccount"
"""Role that only writes logs and metrics: https://cloud.google.com/kubernetes-engine/docs/how-to/hardening-your-cluster"""


@dataclass(frozen=True, kw_only=True)
class NodeIdentityArgs:
    """Inputs of `NodeIdentity`."""

    project: pulumi.Input[str]
    """Project of the cluster."""
    cluster: str
    """Name of the cluster."""


class NodeIdentity(pulumi.ComponentResource):
    """Service account of the nodes, instead of the project's default account."""

    email: pulumi.Output[str]
    """E-mail address of the account, known after its role is granted."""

    def __init__(self, name: str, args: NodeIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:gcp:NodeIdentity", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = gcp.serviceaccount.Account(
            f"{name}-account",
            project=args.project,
            account_id=fit_name(args.cluster, "nodes", ACCOUNT_LIMIT),
            display_name=f"Nodes of the GKE cluster {args.cluster}",
            opts=child,
        )
        grant = gcp.projects.IAMMember(
            f"{name}-role", project=args.project, role=NODE_ROLE, member=account.member, opts=child
        )
        self.email = pulumi.Output.all(account.email, grant.id).apply(lambda values: values[0])
        self.register_outputs({"email": self.email})


@dataclass(frozen=True, kw_only=True)
class WorkloadIdentityArgs:
    """Inputs of `WorkloadIdentity`."""

    project: pulumi.Input[str]
    """Project of the cluster."""
    cluster: str
    """Name of the cluster."""
    workload_pool: pulumi.Input[str]
    """Workload identity pool of the cluster. It exists once the cluster exists."""
    namespace: str
    """Kubernetes namespace of the jobs."""
    service_account: str
    """Kubernetes service account of the jobs."""


class WorkloadIdentity(pulumi.ComponentResource):
    """Google Cloud service account of the jobs. It has roles only on single resources.

    https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity
    """

    email: pulumi.Output[str]
    """E-mail address, the value of the annotation `iam.gke.io/gcp-service-account`."""
    member: pulumi.Output[str]
    """The account as an IAM policy member."""

    def __init__(self, name: str, args: WorkloadIdentityArgs, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("trainyard:gcp:WorkloadIdentity", name, None, opts)
        child = pulumi.ResourceOptions(parent=self)
        account = gcp.serviceaccount.Account(
            f"{name}-account",
            project=args.project,
            account_id=fit_name(args.cluster, "jobs", ACCOUNT_LIMIT),
            display_name=f"Training jobs of the GKE cluster {args.cluster}",
            opts=child,
        )
        gcp.serviceaccount.IAMMember(
            f"{name}-user",
            service_account_id=account.name,
            role="roles/iam.workloadIdentityUser",
            member=pulumi.Output.format(
                "serviceAccount:{0}[{1}/{2}]", args.workload_pool, args.namespace, args.service_account
            ),
            opts=child,
        )
        self.email = account.email
        self.member = account.member
        self.register_outputs({"email": self.email, "member": self.member})
