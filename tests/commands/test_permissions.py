"""Permissions of the workflows' identities: they cover every cloud resource type, without wildcards or basic roles."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from infra.aws.inventory import ACTIONS
from infra.gcp.inventory import ROLES
from simulation.cloud.checking import KINDS
from simulation.object_store import s3_server
from tests.commands.platforms import eks, gke, permissions_of

PROJECT = Path(__file__).resolve().parents[2]
A3 = {"name": "a3", "nodes": 2, "machine_type": "a3-highgpu-8g"}
PRINT_OPERATIONS = """
import json, sys, botocore.session
session = botocore.session.get_session()
names = {"elasticloadbalancing": ("elb", "elbv2"), "servicequotas": ("service-quotas",),
         "tag": ("resourcegroupstaggingapi",)}
found = {}
for prefix in json.load(sys.stdin):
    found[prefix] = sorted({operation for name in names.get(prefix, (prefix,))
                            for operation in session.get_service_model(name).operation_names})
json.dump(found, sys.stdout)
"""
"""Program that reads names of AWS services in JSON and prints the operations that botocore has for each service."""


def statements(policy: dict[str, Any]) -> dict[str, Any]:
    """Return the statements of a policy by their ids."""
    return {each["Sid"]: each for each in policy["Statement"]}


def test_permissions_actions_and_roles_cover_every_cloud_kind() -> None:
    kinds = {kind for kind in KINDS if kind.startswith(("aws:", "gcp:"))}
    assert kinds == set(ACTIONS) | set(ROLES)


def test_eks_permissions_actions_exist_in_botocore() -> None:
    allowed = {each for found in permissions_of(eks("train"))["Statement"] for each in found["Action"]}
    allowed |= {each for actions in ACTIONS.values() for each in actions}
    # S3's actions have other names than its calls, and passing a role is not a call.
    called = sorted(each for each in allowed if not each.startswith("s3:") and each != "iam:PassRole")
    python = s3_server().with_name("python")
    services = json.dumps(sorted({each.partition(":")[0] for each in called}))
    done = subprocess.run([python, "-c", PRINT_OPERATIONS], input=services, capture_output=True, text=True, check=True)
    operations = json.loads(done.stdout)
    assert [each for each in called if each.partition(":")[2] not in operations[each.partition(":")[0]]] == []


def test_eks_permissions_have_no_wildcard_action_and_only_stack_roles() -> None:
    found = statements(permissions_of(eks("train", region="us-west-2")))
    assert not [each for statement in found.values() for each in statement["Action"] if "*" in each]
    assert "ec2:CreateVpc" in found["Change"]["Action"]
    assert found["Change"]["Condition"] == {"StringEquals": {"aws:RequestedRegion": "us-west-2"}}
    assert found["AssociateEndpointNames"]["Action"] == [
        "route53:AssociateVPCWithHostedZone",
        "route53:DisassociateVPCFromHostedZone",
    ]
    assert "Condition" not in found["AssociateEndpointNames"], "Route 53 allows no condition on the region"
    roles = found["ChangeStackRoles"]
    assert "iam:CreateRole" in roles["Action"]
    assert roles["Resource"] == found["PassStackRoles"]["Resource"]
    assert "arn:aws:iam::*:role/nodes-role-*" in roles["Resource"]
    assert all(re.fullmatch(r"arn:aws:iam::\*:role/[a-z-]+-\*", each) for each in roles["Resource"])
    passed = found["PassStackRoles"]["Condition"]["StringEquals"]["iam:PassedToService"]
    assert passed == ["ec2.amazonaws.com", "eks.amazonaws.com", "pods.eks.amazonaws.com"]


def test_eks_permissions_fit_an_inline_policy_of_a_role() -> None:
    admins = ["arn:aws:iam::123456789012:role/admin"]
    policy = permissions_of(eks("train", admins=admins, network={"nat_per_zone": True}, region="ap-southeast-1"))
    num_characters = len("".join(json.dumps(policy).split()))
    assert num_characters > 6_144, "the policy now also fits a managed policy; docs/workflows.md says that it does not"
    # IAM does not count white space. Leave some of the 10,240 characters for access to the state's bucket:
    # https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_iam-quotas.html
    assert num_characters < 9_000
    page = (PROJECT / "docs" / "workflows.md").read_text(encoding="utf-8")
    assert "aws iam put-role-policy" in page


AWS_CALLS_AFTER_CREATION: dict[str, set[str]] = {
    # Actions of the provider's calls after a creation. Each comment names a source file in internal/service.
    "aws:kms/key:Key": {"kms:UpdateKeyDescription", "kms:DisableKeyRotation"},  # kms/key.go, update
    "aws:ec2/subnet:Subnet": {"ec2:DetachNetworkInterface", "ec2:DeleteNetworkInterface"},  # ec2/vpc_subnet.go, delete
    "aws:ec2/securityGroup:SecurityGroup": {  # ec2/vpc_security_group.go, delete
        "ec2:DetachNetworkInterface",
        "ec2:DeleteNetworkInterface",
        "ec2:DescribeSecurityGroupRules",
    },
    "aws:ec2/routeTable:RouteTable": {"ec2:DisassociateRouteTable"},  # ec2/vpc_route_table.go, delete
    # ec2/vpc_endpoint.go, read. Route 53 associates the private names.
    "aws:ec2/vpcEndpoint:VpcEndpoint": {"ec2:DescribeNetworkInterfaces", "route53:AssociateVPCWithHostedZone"},
    "aws:s3/bucket:Bucket": {"s3:TagResource", "s3:UntagResource", "s3:ListTagsForResource"},  # s3/tags.go since 6.23
    "aws:eks/nodeGroup:NodeGroup": {"eks:UpdateNodegroupVersion", "eks:DescribeUpdate"},  # eks/node_group.go, update
    "aws:eks/addon:Addon": {"eks:UpdatePodIdentityAssociation", "eks:DescribeUpdate"},  # eks/addon.go, update
    "aws:cloudwatch/logGroup:LogGroup": {"logs:DeleteRetentionPolicy"},  # logs/group.go, update
}


def test_eks_permissions_include_the_providers_calls_after_creation() -> None:
    for kind, calls in AWS_CALLS_AFTER_CREATION.items():
        assert calls <= set(ACTIONS[kind]), kind


def test_eks_permissions_read_statement_has_no_write_action() -> None:
    actions = statements(permissions_of(eks("train")))["Read"]["Action"]
    assert "iam:ListRoleTags" in actions
    assert "tag:GetResources" in actions
    assert not [each for each in actions if re.search(r":(Create|Put|Delete|Update|Modify|Attach|Tag)", each)]


def test_gke_permissions_have_no_basic_role_and_limit_grantable_roles() -> None:
    found = {each["role"]: each.get("condition") for each in permissions_of(gke("train", pools=[A3]))["bindings"]}
    assert not {"roles/owner", "roles/editor", "roles/viewer"} & set(found)
    condition = found["roles/resourcemanager.projectIamAdmin"]
    assert condition
    roles = ["roles/container.defaultNodeServiceAccount", "roles/serviceusage.serviceUsageConsumer"]
    assert f"hasOnly({json.dumps(roles)})" in condition["expression"]
    assert "roles/compute.networkAdmin" in found


def test_gke_permissions_without_fabric_omit_security_admin() -> None:
    plain = {each["role"] for each in permissions_of(gke("train"))["bindings"]}
    more = {each["role"] for each in permissions_of(gke("train", pools=[A3]))["bindings"]}
    assert more - plain == {"roles/compute.securityAdmin"}


@pytest.mark.parametrize(
    ("stack", "code", "expected_text"),
    [
        ("eks", 0, '"Version"'),
        ("dev", 0, '"bindings"'),
        ("local", 2, "no permissions"),
        ("x", 2, "Pulumi.x.yaml: no such file"),
    ],
)
def test_permissions_command_prints_policy_or_error(stack: str, code: int, expected_text: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "commands.workflows", "permissions", stack],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    assert expected_text in (done.stdout if code == 0 else done.stderr)


def test_workflows_page_lists_all_variables_and_secrets_of_workflows() -> None:
    page = (PROJECT / "docs" / "workflows.md").read_text(encoding="utf-8")
    texts = [each.read_text(encoding="utf-8") for each in (PROJECT / ".github" / "workflows").glob("*.yml")]
    read = {name for text in texts for name in re.findall(r"\b(?:vars|secrets)\.([A-Z_]+)", text)}
    assert read
    assert read == set(re.findall(r"^ +\| `([A-Z_]+)` \|", page, flags=re.MULTILINE))
