"""Kinds of AWS resources that a training stack uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulation.cloud.aws import cluster_rules, ec2_kinds, other_rules
from simulation.cloud.aws.account import ACCOUNT
from simulation.cloud.aws.ec2_kinds import SUBNET, TEMPLATE
from simulation.cloud.kind import Autoname, Kind, Reference

ROLE = "aws:iam/role:Role"
POLICY = "aws:iam/policy:Policy"
KEY = "aws:kms/key:Key"
CLUSTER = "aws:eks/cluster:Cluster"
NODE_GROUP = "aws:eks/nodeGroup:NodeGroup"
BUCKET = "aws:s3/bucket:Bucket"
REPOSITORY = "aws:ecr/repository:Repository"


_IN_CLUSTER = Reference(path="clusterName", types=(CLUSTER,), owner=False)


def _eks(type_: str, id_: str, **more: Any) -> Kind:
    return Kind(type=type_, id=id_, **more)


_EKS = (
    _eks(
        CLUSTER,
        "{name}",
        autoname=Autoname(limit=100),
        outputs={"arn": f"arn:aws:eks:{{region}}:{ACCOUNT}:cluster/{{name}}", **cluster_rules.ACCESS},
        references=(
            Reference(path="roleArn", types=(ROLE,)),
            Reference(path="vpcConfig.subnetIds", types=(SUBNET,)),
            Reference(path="encryptionConfig.provider.keyArn", types=(KEY,)),
        ),
        rules=cluster_rules.CLUSTER_RULES,
        seconds=9 * 60,
        delete_seconds=5 * 60,
    ),
    _eks(
        NODE_GROUP,
        "{clusterName}:{nodeGroupName}",
        autoname=Autoname(property="nodeGroupName", limit=63),
        outputs={"arn": f"arn:aws:eks:{{region}}:{ACCOUNT}:nodegroup/{{id}}", "status": "ACTIVE"},
        references=(
            _IN_CLUSTER,
            Reference(path="nodeRoleArn", types=(ROLE,)),
            Reference(path="subnetIds", types=(SUBNET,)),
            Reference(path="launchTemplate.id", types=(TEMPLATE,)),
        ),
        rules=cluster_rules.GROUP_RULES,
        seconds=3 * 60,
        delete_seconds=4 * 60,
        quota=cluster_rules.quota,
    ),
    _eks(
        "aws:eks/addon:Addon",
        "{clusterName}:{addonName}",
        outputs={"arn": f"arn:aws:eks:{{region}}:{ACCOUNT}:addon/{{id}}"},
        references=(
            _IN_CLUSTER,
            Reference(path="podIdentityAssociations.roleArn", types=(ROLE,)),
        ),
        rules=(cluster_rules.addon_exists, cluster_rules.addon_has_nodes),
        seconds=30,
        delete_seconds=20,
    ),
    _eks(
        "aws:eks/accessEntry:AccessEntry",
        "{clusterName}:{principalArn}",
        references=(_IN_CLUSTER,),
        rules=(cluster_rules.access_entry,),
    ),
    _eks(
        "aws:eks/accessPolicyAssociation:AccessPolicyAssociation",
        "{clusterName}#{principalArn}#{policyArn}",
        references=(_IN_CLUSTER,),
    ),
    _eks(
        "aws:eks/podIdentityAssociation:PodIdentityAssociation",
        "a-{number}",
        outputs={"associationId": "{id}"},
        references=(_IN_CLUSTER, Reference(path="roleArn", types=(ROLE,))),
        rules=(cluster_rules.pod_role,),
    ),
)

_OTHER = (
    Kind(
        type=ROLE,
        id="{name}",
        autoname=Autoname(limit=64),
        outputs={"arn": f"arn:aws:iam::{ACCOUNT}:role/{{name}}", "uniqueId": "AROA{number}"},
        rules=(other_rules.role_name, other_rules.trust_policy),
        seconds=2,
    ),
    Kind(
        type=POLICY,
        id=f"arn:aws:iam::{ACCOUNT}:policy/{{name}}",
        autoname=Autoname(limit=128),
        outputs={"arn": "{id}"},
        replaces=frozenset({"name", "path", "description"}),
        rules=(other_rules.policy_document,),
    ),
    Kind(
        type="aws:iam/rolePolicy:RolePolicy",
        id="{role}:{name}",
        autoname=Autoname(limit=128),
        references=(Reference(path="role", types=(ROLE,)),),
        rules=(other_rules.policy_document,),
    ),
    Kind(
        type="aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        id="{role}/{policyArn}",
        references=(
            Reference(path="role", types=(ROLE,)),
            Reference(path="policyArn", types=(POLICY,), prefix=f"arn:aws:iam::{ACCOUNT}:"),
        ),
        rules=(other_rules.managed_policy,),
    ),
    Kind(
        type=KEY,
        id="{number}",
        outputs={"arn": f"arn:aws:kms:{{region}}:{ACCOUNT}:key/{{id}}", "keyId": "{id}"},
        rules=(other_rules.key_deletion,),
        seconds=10,
    ),
    Kind(
        type="aws:kms/alias:Alias",
        id="{name}",
        autoname=Autoname(limit=256, prefix="alias/"),
        replaces=frozenset({"name"}),
        references=(Reference(path="targetKeyId", types=(KEY,)),),
    ),
    Kind(
        type="aws:cloudwatch/logGroup:LogGroup",
        id="{name}",
        autoname=Autoname(limit=512),
        outputs={"arn": f"arn:aws:logs:{{region}}:{ACCOUNT}:log-group:{{name}}"},
        rules=(other_rules.log_retention,),
        seconds=1,
    ),
    Kind(
        type=BUCKET,
        id="{bucket}",
        autoname=Autoname(property="bucket"),
        outputs={
            "arn": "arn:aws:s3:::{bucket}",
            "bucketDomainName": "{bucket}.s3.amazonaws.com",
            "bucketRegionalDomainName": "{bucket}.s3.{region}.amazonaws.com",
        },
        rules=(other_rules.s3_bucket_name,),
        seconds=2,
    ),
    *(
        Kind(
            type=f"aws:s3/{name[0].lower()}{name[1:]}:{name}",
            id="{bucket}",
            references=(Reference(path="bucket", types=(BUCKET,)),),
            seconds=1,
        )
        for name in (
            "BucketPublicAccessBlock",
            "BucketOwnershipControls",
            "BucketServerSideEncryptionConfiguration",
            "BucketPolicy",
            "BucketVersioning",
            "BucketLifecycleConfiguration",
        )
    ),
    Kind(
        type=REPOSITORY,
        id="{name}",
        autoname=Autoname(limit=256),
        outputs={
            "arn": f"arn:aws:ecr:{{region}}:{ACCOUNT}:repository/{{name}}",
            "repositoryUrl": f"{ACCOUNT}.dkr.ecr.{{region}}.amazonaws.com/{{name}}",
            "registryId": ACCOUNT,
        },
        rules=(other_rules.repository_name,),
        seconds=2,
    ),
    Kind(
        type="aws:ecr/lifecyclePolicy:LifecyclePolicy",
        id="{repository}",
        references=(Reference(path="repository", types=(REPOSITORY,)),),
        seconds=1,
    ),
)

KINDS: Mapping[str, Kind] = {kind.type: kind for kind in (*ec2_kinds.KINDS, *_EKS, *_OTHER)}
"""Kinds of AWS resources, by type token."""
