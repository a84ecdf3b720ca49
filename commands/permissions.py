"""`python -m commands.rights STACK`: the minimum permissions to preview, create, destroy and list a cloud stack.

Prints JSON: an IAM policy for EKS, the roles with their conditions for GKE. docs/workflows.md says who gets them. Not
yet tested on a cloud account.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from commands.environment import PROJECT
from commands.remains.listings import AMAZON, GOOGLE
from commands.review.recording import Record, run
from infra.aws import cloud as aws
from infra.aws.config import EksConfig
from infra.aws.rights import ACTIONS, PUSH, READ
from infra.gcp import cloud as gcp
from infra.gcp.config import GkeConfig
from infra.gcp.rights import LISTED, ROLES
from stack_config import load_file

Document = dict[str, Any]
SERVICES = {
    "elb": "elasticloadbalancing",
    "elbv2": "elasticloadbalancing",
    "resourcegroupstaggingapi": "tag",
    "s3api": "s3",
}
"""IAM names of the AWS CLI's services, if they differ."""
NAMES = {
    "s3:ListBuckets": "s3:ListAllMyBuckets",
    "iam:ListOpenIdConnectProviders": "iam:ListOpenIDConnectProviders",
    "iam:ListOpenIdConnectProviderTags": "iam:ListOpenIDConnectProviderTags",
}
"""Actions whose name differs from their command's."""
READING = ("Describe", "Get", "List", "BatchGet", "BatchCheck")


def action(words: Sequence[str]) -> str:
    """Return the IAM action of an `aws` command: `aws ec2 describe-vpcs` is `ec2:DescribeVpcs`."""
    _, service, verb, *_ = words
    name = f"{SERVICES.get(service, service)}:{''.join(part.capitalize() for part in verb.split('-'))}"
    return NAMES.get(name, name)


def amazon(platform: EksConfig) -> Document:
    """Return the IAM policy for an EKS stack."""
    records = run(lambda: aws.build_cloud(platform)).records
    made = {each for record in records for each in ACTIONS.get(record.type, ())} | set(PUSH)
    listed = {action(each) for listing in AMAZON for each in (listing.words, listing.tags) if each}
    reading = {each for each in made if each.partition(":")[2].startswith(READING)} | listed | set(READ)
    passed, linked = "iam:PassRole", "iam:CreateServiceLinkedRole"
    changing = made - reading - {passed, linked}
    roles = [f"arn:aws:iam::*:role/{record.name}-*" for record in records if record.type == "aws:iam/role:Role"]
    here = {"StringEquals": {"aws:RequestedRegion": platform.region}}
    to = {"StringEquals": {"iam:PassedToService": sorted(_trusted(records))}}
    # Route 53 has no regions. AWS calls it with the caller's permissions for an endpoint with private names:
    # https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html, CreateVpcEndpoint
    names = {each for each in changing if each.startswith("route53:")}
    service = {"StringEquals": {"iam:AWSServiceName": ["eks.amazonaws.com", "eks-nodegroup.amazonaws.com"]}}
    return {
        "Version": "2012-10-17",
        "Statement": [
            _statement("Look", reading),
            _statement("Change", (each for each in changing - names if not each.startswith("iam:")), Condition=here),
            _statement("NameEndpoints", names),
            _statement("ChangeItsRoles", (each for each in changing if each.startswith("iam:")), roles),
            _statement("PassItsRoles", [passed], roles, Condition=to),
            _statement("LetServicesIn", [linked], Condition=service),
        ],
    }


def _trusted(records: Iterable[Record]) -> set[str]:
    """Return the services that may assume the stack's roles."""
    trusts = [json.loads(record.inputs["assumeRolePolicy"]) for record in records if record.type == "aws:iam/role:Role"]
    return {statement["Principal"]["Service"] for trust in trusts for statement in trust["Statement"]}


def _statement(sid: str, actions: Iterable[str], resources: Sequence[str] = ("*",), **more: Any) -> Document:
    return {"Sid": sid, "Effect": "Allow", "Action": sorted(actions), "Resource": sorted(resources), **more}


def google(platform: GkeConfig) -> Document:
    """Return the project roles for a GKE stack."""
    records = run(lambda: gcp.build_cloud(platform)).records
    roles = {role for record in records for role in ROLES.get(record.type, ())}
    roles |= {LISTED[listing.kind] for listing in GOOGLE if listing.kind in LISTED}
    granted = sorted({record.inputs["role"] for record in records if record.type == "gcp:projects/iAMMember:IAMMember"})
    only = f"api.getAttribute('iam.googleapis.com/modifiedGrantsByRole', []).hasOnly({json.dumps(granted)})"
    conditions = {"roles/resourcemanager.projectIamAdmin": {"title": "grants only these roles", "expression": only}}
    bindings = [{"role": role, **({"condition": conditions[role]} if role in conditions else {})} for role in roles]
    return {"project": platform.project, "bindings": sorted(bindings, key=lambda each: str(each["role"]))}


def main(arguments: list[str]) -> int:
    """Print the permissions. Return 0, or 2 for a stack without a cloud or for settings that cannot be read."""
    parser = argparse.ArgumentParser(prog="python -m commands.rights", description=__doc__)
    parser.add_argument("stack", help="a stack of GKE or EKS, such as `eks`")
    stack = parser.parse_args(arguments).stack
    try:
        platform = load_file(PROJECT / f"Pulumi.{stack}.yaml").platform
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if isinstance(platform, EksConfig):
        print(json.dumps(amazon(platform), indent=2))
    elif isinstance(platform, GkeConfig):
        print(json.dumps(google(platform), indent=2))
    else:
        print(f"stack {stack}: a {platform.kind} platform needs no rights in a cloud", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
