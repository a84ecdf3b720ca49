"""Schema and rules of the simulated clouds: valid inputs fit the schema, and each rule rejects inputs that break it."""

from __future__ import annotations

from typing import Any

import pytest

from settings.problem import dotted
from simulation.cloud import checking
from simulation.cloud.checking import KINDS
from simulation.cloud.model import CloudState, Rule, SimulatedResource
from tests.rehearsal.valid_inputs import GKE_CLUSTER, NODE_GROUP, SUBNET, T4_POOL, TPU_POOL, TRUST_POLICY, VALID_INPUTS

POOL, NODES = "gcp:container/nodePool:NodePool", "aws:eks/nodeGroup:NodeGroup"
EKS = "aws:eks/cluster:Cluster"


def code_of(rule: str, type_: str) -> str:
    """Return the code of a rule for a resource type."""
    return f"rehearsal.{type_.partition(':')[0]}.{rule}"


def all_rules() -> list[Rule]:
    """Return the rules of all resource types."""
    return [rule for kind in KINDS.values() for rule in kind.rules]


@pytest.mark.parametrize(
    ("type_", "inputs"), [*VALID_INPUTS.items(), (POOL, TPU_POOL)], ids=[*VALID_INPUTS, "TPU slice"]
)
def test_valid_inputs_pass_the_schema(type_: str, inputs: dict[str, Any]) -> None:
    assert [str(each) for each in checking.problems(type_, inputs)] == []


def test_rules_have_unique_codes() -> None:
    rules = {id(rule): rule for rule in all_rules()}.values()
    assert len({rule.code for rule in rules}) == len(rules)
    assert all(rule.source.startswith("https://") for rule in rules)


@pytest.mark.parametrize(
    ("type_", "inputs", "words"),
    [
        ("gcp:container/cluster:Cluster", {**GKE_CLUSTER, "nme": "x"}, "did you mean name"),
        ("gcp:container/cluster:Cluster", {**GKE_CLUSTER, "initialNodeCount": "many"}, "a whole number"),
        ("gcp:serviceaccount/iAMMember:IAMMember", {"role": "roles/viewer"}, "is missing"),
        (
            "gcp:container/nodePool:NodePool",
            {**T4_POOL, "nodeConfig": {"machine_type": "x"}},
            "did you mean machineType",
        ),
        ("aws:eks/cluster:Cluster", {"roleArn": "r", "vpcConfig": {"subnetIds": "x"}}, "must be a list"),
        ("aws:iam/role:Role", {"assumeRolePolicy": TRUST_POLICY, "tags": {"a": ["b"]}}, "must be text"),
    ],
)
def test_inputs_outside_the_schema_are_rejected(type_: str, inputs: dict[str, Any], words: str) -> None:
    found = checking.problems(type_, inputs)
    assert any(words in each.message and each.code.endswith(".provider_schema") for each in found), found


def record(type_: str, id_: str, **inputs: Any) -> SimulatedResource:
    """Return an existing resource, whose outputs equal its inputs."""
    return SimulatedResource(id=id_, type=type_, urn="", inputs=inputs, outputs=dict(inputs))


TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def cluster(version: str) -> SimulatedResource:
    """Return the cluster `train` with this version."""
    return record(EKS, "train", **{**VALID_INPUTS[EKS], "name": "train", "version": version})


def role_of(service: str, name: str) -> SimulatedResource:
    """Return a role that only this service of AWS can assume."""
    policy = TRUST_POLICY.replace("eks.amazonaws.com", service)
    return record("aws:iam/role:Role", name, arn=f"arn:aws:iam::123456789012:role/{name}", assumeRolePolicy=policy)


SUBNETS, GKE = "gcp:compute/subnetwork:Subnetwork", "gcp:container/cluster:Cluster"
MEMBER, IDENTITY = "gcp:serviceaccount/iAMMember:IAMMember", "aws:eks/podIdentityAssociation:PodIdentityAssociation"
NODES_SUBNET = record(SUBNETS, "nodes", **SUBNET)
BROKEN_RULES: list[tuple[str, str, str, dict[str, Any], list[SimulatedResource]]] = [
    ("ranges_of_network", "ipCidrRange", SUBNETS, {**SUBNET, "name": "more"}, [NODES_SUBNET]),
    (
        "secondary_ranges_exist",
        "ipAllocationPolicy.clusterSecondaryRangeName",
        GKE,
        {**GKE_CLUSTER, "ipAllocationPolicy": {"clusterSecondaryRangeName": "pots"}},
        [NODES_SUBNET],
    ),
    ("workload_pool_exists", "member", MEMBER, VALID_INPUTS[MEMBER], []),
    (
        "member_exists",
        "member",
        "gcp:projects/iAMMember:IAMMember",
        {"project": "p-1", "role": "r", "member": "serviceAccount:a@p-1.iam.gserviceaccount.com"},
        [],
    ),
    (
        "subnet_in_vpc",
        "cidrBlock",
        "aws:ec2/subnet:Subnet",
        {"vpcId": "vpc-1", "cidrBlock": "10.9.0.0/20"},
        [record("aws:ec2/vpc:Vpc", "vpc-1", cidrBlock="10.0.0.0/16")],
    ),
    (
        "subnets_in_two_zones",
        "vpcConfig.subnetIds",
        EKS,
        VALID_INPUTS[EKS],
        [record("aws:ec2/subnet:Subnet", "subnet-1", availabilityZone="us-west-2a")],
    ),
    ("cluster_role", "roleArn", EKS, VALID_INPUTS[EKS], [role_of("ec2.amazonaws.com", "eks")]),
    ("cluster_role", "roleArn", EKS, VALID_INPUTS[EKS], [role_of("pods.eks.amazonaws.com", "eks")]),
    (
        "placement_group_in_one_zone",
        "subnetIds",
        NODES,
        {**NODE_GROUP, "subnetIds": ["subnet-1", "subnet-2"]},
        [record(TEMPLATE, "lt-1", placement={"groupName": "gpus"})],
    ),
    ("version_goes_up_by_one", "version", EKS, {**VALID_INPUTS[EKS], "version": "1.35"}, [cluster("1.33")]),
    ("version_goes_up_by_one", "version", EKS, {**VALID_INPUTS[EKS], "version": "1.33"}, [cluster("1.34")]),
    (
        "version_goes_up_by_one",
        "version",
        EKS,
        {**VALID_INPUTS[EKS], "version": "1.35"},
        [cluster("1.34"), record(NODES, "train:gpus", clusterName="train", version="1.33")],
    ),
    (
        "zones_stay",
        "vpcConfig.subnetIds",
        EKS,
        {**VALID_INPUTS[EKS], "vpcConfig": {"subnetIds": ["subnet-2"]}},
        [
            record(EKS, "train", **{**VALID_INPUTS[EKS], "vpcConfig": {"subnetIds": ["subnet-1"]}}),
            record("aws:ec2/subnet:Subnet", "subnet-1", availabilityZone="us-west-2a", vpcId="vpc-1"),
            record("aws:ec2/subnet:Subnet", "subnet-2", availabilityZone="us-west-2b", vpcId="vpc-1"),
        ],
    ),
    (
        "group_not_above_cluster",
        "version",
        NODES,
        {**NODE_GROUP, "version": "1.35"},
        [record(EKS, NODE_GROUP["clusterName"], name=NODE_GROUP["clusterName"], version="1.34")],
    ),
    (
        "block_is_in_the_template",
        "launchTemplate",
        NODES,
        {**NODE_GROUP, "capacityType": "CAPACITY_BLOCK", "launchTemplate": {"id": "lt-1", "version": "1"}},
        [record(TEMPLATE, "lt-1")],
    ),
    (
        "node_role",
        "nodeRoleArn",
        NODES,
        NODE_GROUP,
        [record("aws:iam/role:Role", "nodes", assumeRolePolicy=TRUST_POLICY)],
    ),
    ("addon_has_nodes", "addonName", "aws:eks/addon:Addon", VALID_INPUTS["aws:eks/addon:Addon"], []),
    ("pod_role", "roleArn", IDENTITY, VALID_INPUTS[IDENTITY], [role_of("ec2.amazonaws.com", "pods")]),
]
"""Name of a rule, the input that the rule reports, a resource type, its inputs, and the resources that exist."""


@pytest.mark.parametrize(
    ("name", "path", "type_", "inputs", "existing"), BROKEN_RULES, ids=[name for name, *_ in BROKEN_RULES]
)
def test_rule_rejects_inputs_that_break_it(
    name: str, path: str, type_: str, inputs: dict[str, Any], existing: list[SimulatedResource]
) -> None:
    state = CloudState(resources={each.id: each for each in existing})
    [rule] = [each for each in KINDS[type_].rules if each.code == code_of(name, type_)]
    assert path in [dotted(each.path) for each in rule.problems(inputs, state)]


def test_every_rule_has_a_test_that_breaks_it() -> None:
    rules = {rule.code for rule in all_rules()}
    assert rules - {code_of(rule, type_) for rule, _, type_, *_ in BROKEN_RULES} == set()
