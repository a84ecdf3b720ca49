"""Resources from the output of `gcloud` and `aws`, requests for missing tags, checks of an AWS account."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from subprocess import CalledProcessError
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


ZONES = [{"ZoneName": f"us-west-2{each}", "ZoneId": f"usw2-{each}", "ZoneType": "availability-zone"} for each in "abc"]
OFFERINGS = [
    {"InstanceType": machine, "Location": f"us-west-2{letter}"}
    for machine, letters in {"m7i.large": "abc", "g4dn.12xlarge": "ab", "p5.48xlarge": "c"}.items()
    for letter in letters
]
RESERVATION = {
    "CapacityReservationId": "cr-0123456789abcdef0",
    "State": "active",
    "InstanceType": "p5.48xlarge",
    "AvailabilityZone": "us-west-2c",
    "TotalInstanceCount": 2,
    "ReservationType": "capacity-block",
    "StartDate": "2026-12-01T00:00:00Z",
}
ACCOUNT = {
    "aws ec2 describe-availability-zones": {"AvailabilityZones": ZONES},
    "aws ec2 describe-instance-type-offerings": {"InstanceTypeOfferings": OFFERINGS},
    "aws ec2 describe-capacity-reservations": {"CapacityReservations": [RESERVATION]},
    "aws logs describe-log-groups": {"logGroups": []},
}
"""Answers of an account without a log group of the cluster."""


def deployed(kind: str, **outputs: Any) -> dict[str, Any]:
    """Return a resource as it is in Pulumi's state."""
    return {"type": f"aws:{kind}", "urn": f"urn:pulumi:mine::trainyard::aws:{kind}::a", "id": "a", "outputs": outputs}


CLUSTER = [
    deployed("ec2/vpc:Vpc", cidrBlock="10.0.0.0/16"),
    {
        **deployed("ec2/subnet:Subnet", cidrBlock="10.0.0.0/18", availabilityZone="us-west-2a"),
        "urn": "urn:pulumi:mine::trainyard::aws:ec2/subnet:Subnet::network-private-us-west-2a",
    },
    deployed("eks/cluster:Cluster", version="1.36"),
]
"""Resources of a deployed cluster in Pulumi's state."""


def node_group(machine: str, status: str = "ACTIVE") -> dict[str, Any]:
    """Return the node group of the pool `gpus` as it is in Pulumi's state."""
    return deployed("eks/nodeGroup:NodeGroup", nodeGroupName="gpus", instanceTypes=[machine], status=status)


def account_codes(answers: Mapping[str, Any], resources: list[Any], **platform: Any) -> list[str]:
    """Return the problems of an EKS platform in an account, each as `CODE MESSAGE`."""
    found = cloud(eks("a", **platform)).problems_in_cloud({"resources": resources}, FakeCommand(dict(answers)))
    return [f"{each.code} {each}" for each in found]


def test_zones_that_the_account_lacks_or_eks_rejects_are_problems() -> None:
    bad = [{**ZONES[0], "ZoneId": "use1-az3"}, ZONES[1]]
    answers = {**ACCOUNT, "aws ec2 describe-availability-zones": {"AvailabilityZones": bad}}
    rejected, lacking = account_codes(answers, [], pools=[])
    assert rejected.startswith("eks.zones.not_in_account ")
    assert "EKS creates no cluster in us-west-2a, which is use1-az3 in this account" in rejected
    assert "this account does not have us-west-2c; write two or three of us-west-2b" in lacking
    assert account_codes(answers, CLUSTER, pools=[]) == []


def test_zones_that_do_not_offer_the_type_of_a_new_pool_are_problems() -> None:
    pool = {"name": "gpus", "machine_type": "g4dn.12xlarge", "nodes": 1}
    (problem,) = account_codes(ACCOUNT, [], pools=[pool])
    assert problem.startswith("eks.pool.machine_not_in_zone ")
    assert "does not offer it in us-west-2c, only in us-west-2a, us-west-2b; write these as `zones`" in problem
    assert account_codes(ACCOUNT, [], pools=[{**pool, "zones": ["us-west-2b"]}]) == []
    assert account_codes(ACCOUNT, [*CLUSTER, node_group("g4dn.12xlarge")], pools=[pool]) == []
    assert len(account_codes(ACCOUNT, [*CLUSTER, node_group("g5.xlarge")], pools=[pool])) == 1
    assert len(account_codes(ACCOUNT, [*CLUSTER, node_group("g4dn.12xlarge", "CREATE_FAILED")], pools=[pool])) == 1


@pytest.mark.parametrize(
    ("found", "pool", "message"),
    [
        ({}, {}, ""),
        (
            {"State": "scheduled"},
            {},
            "is scheduled and starts no instances yet; run `make up` after its start (2026-12-01T",
        ),
        ({"State": "expired"}, {}, "is expired and starts no instances; write another id"),
        (
            {"ReservationType": "default"},
            {},
            "has another kind in this account; write `reservation:cr-0123456789abcdef0`",
        ),
        ({"InstanceType": "p5e.48xlarge"}, {}, "is for p5e.48xlarge; write `machine_type: p5e.48xlarge`"),
        ({}, {"zones": "us-west-2a"}, "is in us-west-2c; write `zones: [us-west-2c]`"),
        ({"TotalInstanceCount": 1}, {}, "has 1 instance, but the pool has 2 nodes; write `nodes: 1`"),
        ({"CapacityReservationId": "cr-1"}, {}, "this account does not have it in this region"),
    ],
    ids=["usable", "not started", "ended", "kind", "type", "zone", "count", "unknown"],
)
def test_reservation_that_cannot_start_the_nodes_is_a_problem(
    found: dict[str, Any], pool: dict[str, Any], message: str
) -> None:
    capacity = f"capacity-block:{RESERVATION['CapacityReservationId']}"
    settings = {"name": "gpus", "machine_type": "p5.48xlarge", "nodes": 2, "zones": "us-west-2c", "capacity": capacity}
    answers = {
        **ACCOUNT,
        "aws ec2 describe-capacity-reservations": {"CapacityReservations": [{**RESERVATION, **found}]},
    }
    problems = account_codes(answers, [], pools=[{**settings, **pool}])
    assert [each.partition(" ")[0] for each in problems] == (["eks.pool.reservation_unusable"] if message else [])
    assert all(message in each for each in problems)


def test_only_a_new_reservation_of_a_deployed_pool_is_checked() -> None:
    target = {"capacityReservationTarget": {"capacityReservationId": "cr-0123456789abcdef0"}}
    template = deployed("ec2/launchTemplate:LaunchTemplate", capacityReservationSpecification=target)
    pool = {"name": "gpus", "machine_type": "p5.48xlarge", "nodes": 2, "zones": "us-west-2c"}
    answers = {**ACCOUNT, "aws ec2 describe-capacity-reservations": {"CapacityReservations": []}}
    resources = [*CLUSTER, node_group("p5.48xlarge"), template]
    for id_, count in (("cr-0123456789abcdef0", 0), ("cr-0123456789abcdef1", 1)):
        problems = account_codes(answers, resources, pools=[{**pool, "capacity": f"capacity-block:{id_}"}])
        assert [each.partition(" ")[0] for each in problems] == ["eks.pool.reservation_unusable"] * count


def test_account_query_without_permission_skips_only_its_own_check() -> None:
    def run(*words: str) -> Any:
        if "describe-availability-zones" in words:
            raise CalledProcessError(254, words)
        return FakeCommand(dict(ACCOUNT))(*words)

    pool = {"name": "gpus", "machine_type": "g4dn.12xlarge", "nodes": 1}
    problems = cloud(eks("a", pools=[pool])).problems_in_cloud({}, run)
    assert [each.code for each in problems] == ["eks.pool.machine_not_in_zone"]


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
            **ACCOUNT,
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


@pytest.mark.parametrize(("error", "fails"), [("reason: SERVICE_DISABLED", False), ("PERMISSION_DENIED", True)])
def test_list_of_a_disabled_api_is_empty_but_other_errors_remain(error: str, fails: bool) -> None:
    def run(*words: str) -> Any:
        raise CalledProcessError(1, words, stderr=error)

    lister = cloud(gke("a")).lister(ownership_of(gke("a")), run)
    with pytest.raises(CalledProcessError) if fails else nullcontext():
        assert list(lister(listing("secret", GOOGLE))) == []


def test_list_of_bindings_returns_the_members_of_the_project_policy() -> None:
    members = ["serviceAccount:a-nodes@p-12345.iam.gserviceaccount.com", "user:someone@example.com"]
    command = FakeCommand({"gcloud projects get-iam-policy p-12345": {"bindings": [{"role": "r", "members": members}]}})
    found = list(cloud(gke("a")).lister(ownership_of(gke("a")), command)(listing("binding", GOOGLE)))
    assert [each.name for each in found if ownership_of(gke("a")).has(each, ())] == members[:1]
