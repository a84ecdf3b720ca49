"""Resources from the output of `gcloud` and `aws`, requests for tags that a list command does not return, conflicts."""

from __future__ import annotations

from typing import Any

import pytest

from infra.aws.inventory import LISTINGS as AMAZON
from infra.gcp.inventory import LISTINGS as GOOGLE
from infra.inventory import clusters_in, resources_in
from tests.commands.platforms import cloud, eks, gke, listing, ownership_of


def test_resources_in_gcloud_output_have_name_labels_and_facts() -> None:
    answer = [{"name": "gke-dist-1", "labels": {"goog-k8s-cluster-name": "gke-dist"}, "sizeGb": "10"}]
    (disk,) = resources_in(listing("disk", GOOGLE), answer)
    assert (disk.name, disk.labels, disk.facts["sizeGb"]) == ("gke-dist-1", answer[0]["labels"], "10")
    assert list(resources_in(listing("disk", GOOGLE), None)) == []


def test_resources_in_aws_output_have_id_network_and_cluster() -> None:
    tags = [{"Key": "kubernetes.io/cluster/eks-dist", "Value": "owned"}]
    answer = {"NetworkInterfaces": [{"NetworkInterfaceId": "eni-1", "TagSet": tags, "VpcId": "vpc-1"}]}
    (interface,) = resources_in(listing("network interface", AMAZON), answer)
    assert (interface.id, interface.network, clusters_in(interface.labels)) == ("eni-1", "vpc-1", {"eks-dist"})


def test_resources_in_a_list_of_names_have_these_names() -> None:
    assert [each.name for each in resources_in(listing("cluster", AMAZON), {"clusters": ["eks-dist"]})] == ["eks-dist"]


def test_resources_in_aws_output_exclude_deleted_gateways() -> None:
    answer = {"NatGateways": [{"NatGatewayId": "nat-1", "State": "deleted"}]}
    assert list(resources_in(listing("NAT gateway", AMAZON), answer)) == []


class FakeCommand:
    """Fake of `gcloud` or `aws`. `answers` maps the beginning of a command to its output."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers, self.commands = answers, list[str]()

    def __call__(self, *words: str) -> Any:
        self.commands.append(" ".join(words))
        return next((value for key, value in self.answers.items() if self.commands[-1].startswith(key)), None)


def test_list_of_roles_requests_the_missing_tags() -> None:
    command = FakeCommand(
        {
            "aws iam list-roles": {"Roles": [{"RoleName": "nodes-role-0a1b2c3"}, {"RoleName": "other"}]},
            "aws iam list-role-tags": {"Tags": [{"Key": "trainyard-cluster", "Value": "a.us-west-2"}]},
        }
    )
    first, second = cloud(eks("a")).lister(ownership_of(eks("a")), command)(listing("role", AMAZON))
    assert ownership_of(eks("a")).has(first, ())
    assert (second.name, second.labels) == ("other", {})
    assert [each for each in command.commands if "tags" in each] == [
        "aws iam list-role-tags --role-name=nodes-role-0a1b2c3 --region=us-west-2 --output=json"
    ]


GROUP = "/aws/eks/a/cluster"
LOG_GROUP = {"type": "aws:cloudwatch/logGroup:LogGroup", "id": GROUP}


@pytest.mark.parametrize(
    ("groups", "clusters", "resources", "words"),
    [
        ([GROUP], [], [], f"delete it with `aws logs delete-log-group --log-group-name {GROUP} --region us-west-2` if"),
        ([GROUP], ["a"], [], "does not belong to this stack; write another name"),
        ([GROUP], [], [LOG_GROUP], ""),
        ([f"{GROUP}-copy"], [], [], ""),
        ([], [], [], ""),
    ],
    ids=["leftover", "of another owner", "in the state", "longer name", "none"],
)
def test_log_group_outside_the_state_is_a_problem(
    groups: list[str], clusters: list[str], resources: list[dict[str, str]], words: str
) -> None:
    command = FakeCommand(
        {
            f"aws logs describe-log-groups --log-group-name-prefix={GROUP} --region=us-west-2": {
                "logGroups": [{"logGroupName": name} for name in groups]
            },
            "aws eks list-clusters --region=us-west-2": {"clusters": clusters},
        }
    )
    problems = cloud(eks("a")).problems_in_cloud({"resources": resources}, command)
    assert [each.code for each in problems] == (["eks.name.log_group_exists"] if words else [])
    assert all(words in str(each) for each in problems)


@pytest.mark.parametrize(("state", "count"), [("Enabled", 1), ("PendingDeletion", 0)])
def test_list_of_keys_omits_a_key_pending_deletion(state: str, count: int) -> None:
    arn, tags = "arn:aws:kms:us-west-2:1:key/k", [{"Key": "trainyard-cluster", "Value": "a.us-west-2"}]
    command = FakeCommand(
        {
            "aws resourcegroupstaggingapi": {"ResourceTagMappingList": [{"ResourceARN": arn, "Tags": tags}]},
            "aws kms describe-key": {"KeyMetadata": {"KeyState": state}},
        }
    )
    keys = list(cloud(eks("a")).lister(ownership_of(eks("a")), command)(listing("key", AMAZON)))
    assert [ownership_of(eks("a")).has(key, ()) for key in keys] == [True] * count
    assert [key.id for key in keys] == ["k"] * count
    assert "Values=a.us-west-2" in command.commands[0]


def test_list_of_bindings_returns_the_members_of_the_project_policy() -> None:
    members = ["serviceAccount:a-nodes@p-12345.iam.gserviceaccount.com", "user:someone@example.com"]
    command = FakeCommand({"gcloud projects get-iam-policy p-12345": {"bindings": [{"role": "r", "members": members}]}})
    found = list(cloud(gke("a")).lister(ownership_of(gke("a")), command)(listing("binding", GOOGLE)))
    assert [each.name for each in found if ownership_of(gke("a")).has(each, ())] == members[:1]
