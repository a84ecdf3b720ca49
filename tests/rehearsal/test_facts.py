"""The tables of facts against the program, and the Check that goes by them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from commands.environment import PROJECT
from rehearsal.cloud import checking, fact_check
from rehearsal.cloud.fact_table import FOLDER, fact_table
from rehearsal.cloud.state import Properties
from tests.components.cloud_program import graph
from tests.components.test_cloud_keys import EKS, GKE
from tests.recording import Record
from tests.rehearsal.good_inputs import GOOD
from tests.rehearsal.good_inputs import PROJECT as GOOD_PROJECT
from tests.rehearsal.varied_stacks import STACKS

PLACES: Properties = {"project": "some-project", "region": "us-central1", "zone": "us-central1-a"}
TABLES = sorted(FOLDER.glob("*/*.json"))
POOL, CLUSTER = "gcp:container/nodePool:NodePool", "gcp:container/cluster:Cluster"
FIREWALL, NETWORK = "gcp:compute/firewall:Firewall", "gcp:compute/network:Network"
NAT, SUBNET = "gcp:compute/routerNat:RouterNat", "gcp:compute/subnetwork:Subnetwork"
POLICY = "gcp:compute/resourcePolicy:ResourcePolicy"


def platforms() -> Iterator[dict[str, Any]]:
    """The platforms of all configurations that tests and examples have for a cloud."""
    for kind, settings in (("gke", GKE), ("eks", EKS)):
        yield from ({"kind": kind, **each} for pair in settings.values() for each in pair)
    yield from (each["platform"] for each in STACKS.values())
    for file in sorted(PROJECT.glob("Pulumi.*.yaml")):
        content = yaml.safe_load(file.read_text(encoding="utf-8"))["config"]
        found = content.get("platform") or content.get("trainyard:platform")
        if found["kind"] in ("gke", "eks"):
            yield found


@functools.cache
def records() -> dict[str, Record]:
    """What the program registers in the clouds for all of them, each once."""
    found = [each for platform in platforms() for each in graph(platform)[0].records]
    return {str(each): each for each in found if each.type.startswith(("gcp:", "aws:"))}


@pytest.mark.parametrize("package", ["gcp", "aws"])
def test_the_real_check_takes_what_the_program_declares(package: str) -> None:
    refused = set[str]()
    for each in (found for found in records().values() if found.type.startswith(f"{package}:")):
        table = fact_table(each.type)
        if table is None:
            refused.add(f"{each.type} has no table of facts")
            continue
        urn = f"urn:pulumi:test::trainyard::{each.type}::{each.name}"
        inputs = checking.completed(each.type, urn, b"", {}, each.inputs, PLACES)
        refused |= {f"{each.type} {found.property} {found}" for found in fact_check.findings(table, inputs)}
    assert refused == set()


GKE_RULES: list[tuple[str, dict[str, Any], str]] = [
    # Section 3a of the findings of issue 26: the real provider refuses these.
    (POOL, {"upgradeSettings": {"strategy": "SHORT_LIVED"}}, "upgradeSettings.strategy"),
    (POOL, {"nodeCount": 2, "initialNodeCount": 1}, "nodeCount"),
    (POOL, {"upgradeSettings": {"strategy": "BLUE_GREEN", "maxSurge": 1}}, "upgradeSettings.maxSurge"),
    (POOL, {"upgradeSettings": {"strategy": "BLUE_GREEN", "maxUnavailable": 1}}, "upgradeSettings.maxUnavailable"),
    (POOL, {"autoscaling": {"locationPolicy": "SOME"}}, "autoscaling.locationPolicy"),
    (POOL, {"autoscaling": {"minNodeCount": -1}}, "autoscaling.minNodeCount"),
    (
        POOL,
        {"nodeConfig": {"taints": [{"key": "a", "value": "b", "effect": "NoSchedule"}]}},
        "nodeConfig.taints[0].effect",
    ),
    (POOL, {"nodeConfig": {"workloadMetadataConfig": {"mode": "GKE"}}}, "nodeConfig.workloadMetadataConfig.mode"),
    (
        POOL,
        {"nodeConfig": {"kubeletConfig": {"insecureKubeletReadonlyPortEnabled": "false"}}},
        "nodeConfig.kubeletConfig.insecureKubeletReadonlyPortEnabled",
    ),
    (
        POOL,
        {"nodeConfig": {"reservationAffinity": {"consumeReservationType": "SPECIFIC"}}},
        "nodeConfig.reservationAffinity.consumeReservationType",
    ),
    (CLUSTER, {"nodeConfig": {"diskSizeGb": 9}}, "nodeConfig.diskSizeGb"),
    (CLUSTER, {"maintenancePolicy": {}}, "maintenancePolicy.dailyMaintenanceWindow"),
    (
        CLUSTER,
        {
            "maintenancePolicy": {
                "dailyMaintenanceWindow": {"startTime": "03:00"},
                "recurringWindow": {
                    "startTime": "2026-01-01T00:00:00Z",
                    "endTime": "2026-01-01T04:00:00Z",
                    "recurrence": "FREQ=DAILY",
                },
            }
        },
        "maintenancePolicy.recurringWindow",
    ),
    (
        CLUSTER,
        {"maintenancePolicy": {"dailyMaintenanceWindow": {"startTime": "3:00"}}},
        "maintenancePolicy.dailyMaintenanceWindow.startTime",
    ),
    (
        CLUSTER,
        {
            "maintenancePolicy": {
                "recurringWindow": {"startTime": "2026-01-01", "endTime": "2026-01-01T04:00:00Z", "recurrence": "x"}
            }
        },
        "maintenancePolicy.recurringWindow.startTime",
    ),
    (
        CLUSTER,
        {
            "maintenancePolicy": {
                "dailyMaintenanceWindow": {"startTime": "03:00"},
                "maintenanceExclusions": [
                    {
                        "exclusionName": "a",
                        "startTime": "2026-01-01T00:00:00Z",
                        "exclusionOptions": {"scope": "ALL", "endTimeBehavior": "UNTIL_END_OF_SUPPORT"},
                    }
                ],
            }
        },
        "maintenancePolicy.maintenanceExclusions[0].exclusionOptions.scope",
    ),
    (CLUSTER, {"networkingMode": "VPC"}, "networkingMode"),
    (CLUSTER, {"datapathProvider": "CALICO"}, "datapathProvider"),
    (CLUSTER, {"securityPostureConfig": {"mode": "ON"}}, "securityPostureConfig.mode"),
    (CLUSTER, {"databaseEncryption": {"state": "ON"}}, "databaseEncryption.state"),
    (CLUSTER, {"loggingConfig": {"enableComponents": ["PODS"]}}, "loggingConfig.enableComponents[0]"),
    (
        CLUSTER,
        {"ipAllocationPolicy": {"clusterSecondaryRangeName": "pods", "clusterIpv4CidrBlock": "10.4.0.0/14"}},
        "ipAllocationPolicy.clusterIpv4CidrBlock",
    ),
    (CLUSTER, {"clusterIpv4Cidr": "10.4.0.0/14"}, "clusterIpv4Cidr"),
    (CLUSTER, {"enableAutopilot": True}, "removeDefaultNodePool"),
    (CLUSTER, {"enableAutopilot": True, "enableShieldedNodes": True}, "enableShieldedNodes"),
    (
        CLUSTER,
        {"masterAuthorizedNetworksConfig": {"cidrBlocks": [{"cidrBlock": "198.51.100.1/24"}]}},
        "masterAuthorizedNetworksConfig.cidrBlocks[0].cidrBlock",
    ),
    (CLUSTER, {"privateClusterConfig": {}}, "privateClusterConfig.enablePrivateEndpoint"),
    (CLUSTER, {"addonsConfig": {}}, "addonsConfig.agentSandboxConfig"),
    (CLUSTER, {"nodeLocations": ["us-central1-a", "us-central1-b"]}, "nodeLocations"),
    (FIREWALL, {"denies": [{"protocol": "tcp"}]}, "denies"),
    (FIREWALL, {"allows": None}, "allows"),
    (FIREWALL, {"sourceRanges": None}, "sourceRanges"),
    (FIREWALL, {"direction": "IN"}, "direction"),
    (NETWORK, {"routingMode": "LOCAL"}, "routingMode"),
    (NAT, {"natIpAllocateOption": "AUTO"}, "natIpAllocateOption"),
    (NAT, {"sourceSubnetworkIpRangesToNat": "ALL"}, "sourceSubnetworkIpRangesToNat"),
    (NAT, {"logConfig": {"enable": True, "filter": "ERRORS"}}, "logConfig.filter"),
    (NAT, {"name": "n"}, "name"),
    (
        SUBNET,
        {"secondaryIpRanges": [{"rangeName": "Pods", "ipCidrRange": "10.4.0.0/14"}]},
        "secondaryIpRanges[0].rangeName",
    ),
    (POLICY, {"workloadPolicy": {"type": "FAST"}}, "workloadPolicy.type"),
    (
        POLICY,
        {
            "workloadPolicy": {
                "type": "HIGH_THROUGHPUT",
                "acceleratorTopology": "4x4",
                "maxTopologyDistance": "BLOCK",
            }
        },
        "workloadPolicy.acceleratorTopology",
    ),
    (POLICY, {"region": None}, "region"),
    ("gcp:serviceaccount/iAMMember:IAMMember", {"serviceAccountId": "train-jobs"}, "serviceAccountId"),
    ("gcp:storage/bucket:Bucket", {"labels": {"a b": "c"}}, "labels"),
    (
        "gcp:artifactregistry/repository:Repository",
        {"cleanupPolicies": [{"id": "keep", "action": "DROP"}]},
        "cleanupPolicies[0].action",
    ),
    (
        "gcp:artifactregistry/repository:Repository",
        {"cleanupPolicies": [{"id": "keep", "condition": {"tagState": "OLD"}}]},
        "cleanupPolicies[0].condition.tagState",
    ),
]
BASE: dict[str, dict[str, Any]] = {
    **GOOD,
    FIREWALL: {
        "project": GOOD_PROJECT,
        "name": "inside",
        "network": "vpc",
        "direction": "INGRESS",
        "sourceRanges": ["10.0.0.0/8"],
        "allows": [{"protocol": "tcp"}],
    },
    POLICY: {"project": GOOD_PROJECT, "region": "us-central1", "name": "close"},
}


def refusals(type_: str, change: dict[str, Any]) -> dict[str, str]:
    """Input -> what the facts say of good inputs of a type with a change."""
    inputs = {key: value for key, value in {**BASE[type_], **change}.items() if value is not None}
    table = fact_table(type_)
    assert table is not None
    return {each.property: str(each) for each in fact_check.findings(table, inputs)}


@pytest.mark.parametrize(("type_", "change", "where"), GKE_RULES)
def test_check_refuses_what_googles_provider_refuses(type_: str, change: dict[str, Any], where: str) -> None:
    assert refusals(type_, {}) == {}
    found = refusals(type_, change)
    assert "https://github.com/hashicorp/terraform-provider-google-beta/blob/" in found[where]


def test_check_takes_numbers_and_truth_values_in_text() -> None:
    assert refusals(POOL, {"nodeCount": "2", "autoscaling": {"maxNodeCount": "3"}}) == {}
    assert refusals(CLUSTER, {"removeDefaultNodePool": "true"}) == {}
    assert list(refusals(POOL, {"nodeCount": "2.5"})) == ["nodeCount"]


def test_check_refuses_an_empty_location() -> None:
    found = checking.findings(CLUSTER, {**GOOD[CLUSTER], "location": ""})
    assert [each.property for each in found if each.rule == "location"] == ["location"]


@pytest.mark.parametrize("file", TABLES, ids=lambda file: file.stem)
def test_each_table_is_whole(file: Any) -> None:
    package, kind = file.parent.name, file.stem.replace(".", "/", 1)
    name = kind.rpartition("/")[2]
    table = fact_table(f"{package}:{kind}:{name[0].upper()}{name[1:]}")
    assert table is not None
    assert table.commit
    for path, fact in table.inputs.items():
        parent = path.rpartition(".")[0]
        assert not parent or table.inputs[parent]["type"].endswith(("block", "block)")), path
        assert fact["line"], path
    for rule in table.rules:
        named = [*rule.get("inputs", ()), *rule.get("when", {}), *([rule["input"]] if "input" in rule else [])]
        assert set(named) <= set(table.inputs), rule


EKS_CLUSTER, GROUP = "aws:eks/cluster:Cluster", "aws:eks/nodeGroup:NodeGroup"
TEMPLATE, ADDON = "aws:ec2/launchTemplate:LaunchTemplate", "aws:eks/addon:Addon"
RULES = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"
KEY, ENDPOINT, PLACEMENT = "aws:kms/key:Key", "aws:ec2/vpcEndpoint:VpcEndpoint", "aws:ec2/placementGroup:PlacementGroup"
ENTRY, IMAGES = "aws:eks/accessEntry:AccessEntry", "aws:ecr/repository:Repository"
TAINT = {"key": "gpu", "value": "present", "effect": "NO_SCHEDULE"}
RULE = {"id": "old", "status": "Enabled", "expiration": {"days": 3}}
EBS = {"volumeSize": 100, "volumeType": "gp3"}
AWS_BASE: dict[str, dict[str, Any]] = {
    **GOOD,
    GROUP: {
        "clusterName": "train",
        "nodeGroupName": "gpus",
        "nodeRoleArn": "arn:aws:iam::123456789012:role/nodes",
        "subnetIds": ["subnet-1"],
        "scalingConfig": {"minSize": 1, "desiredSize": 1, "maxSize": 1},
    },
    TEMPLATE: {"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": EBS}]},
    RULES: {"bucket": "train", "rules": [RULE]},
    KEY: {},
    ENDPOINT: {"vpcId": "vpc-1", "serviceName": "com.amazonaws.us-west-2.s3"},
    PLACEMENT: {"name": "gpus", "strategy": "cluster"},
    IMAGES: {"name": "train"},
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": {"repository": "train", "policy": "{}"},
    "aws:ec2/subnet:Subnet": {"vpcId": "vpc-1", "cidrBlock": "10.0.0.0/20"},
}
AWS_RULES: list[tuple[str, dict[str, Any], str]] = [
    # Section 4a of the findings of issue 26.
    (GROUP, {"amiType": "AL2023"}, "amiType"),
    (GROUP, {"capacityType": "BLOCK"}, "capacityType"),
    (GROUP, {"taints": [{**TAINT, "effect": "NoSchedule"}]}, "taints[0].effect"),
    (GROUP, {"taints": [{**TAINT, "key": "k" * 64}]}, "taints[0].key"),
    (GROUP, {"taints": [{**TAINT, "value": "v" * 64}]}, "taints[0].value"),
    (GROUP, {"taints": [{**TAINT, "key": f"k{n}"} for n in range(51)]}, "taints"),
    (GROUP, {"updateConfig": {}}, "updateConfig.maxUnavailable"),
    (
        GROUP,
        {"updateConfig": {"maxUnavailable": 1, "maxUnavailablePercentage": 10}},
        "updateConfig.maxUnavailablePercentage",
    ),
    (GROUP, {"updateConfig": {"maxUnavailable": 101}}, "updateConfig.maxUnavailable"),
    (GROUP, {"launchTemplate": {"id": "template", "version": "1"}}, "launchTemplate.id"),
    (EKS_CLUSTER, {"accessConfig": {"authenticationMode": "IAM"}}, "accessConfig.authenticationMode"),
    (EKS_CLUSTER, {"upgradePolicy": {"supportType": "LONG"}}, "upgradePolicy.supportType"),
    (EKS_CLUSTER, {"kubernetesNetworkConfig": {"ipFamily": "v4"}}, "kubernetesNetworkConfig.ipFamily"),
    (
        EKS_CLUSTER,
        {"kubernetesNetworkConfig": {"serviceIpv4Cidr": "198.18.0.0/16"}},
        "kubernetesNetworkConfig.serviceIpv4Cidr",
    ),
    (
        EKS_CLUSTER,
        {"encryptionConfig": {"provider": {"keyArn": "arn"}, "resources": ["pods"]}},
        "encryptionConfig.resources[0]",
    ),
    (EKS_CLUSTER, {"roleArn": "eks"}, "roleArn"),
    (ENTRY, {"type": "ADMIN"}, "type"),
    (ADDON, {"addonVersion": "1.12"}, "addonVersion"),
    (ADDON, {"resolveConflictsOnCreate": "PRESERVE"}, "resolveConflictsOnCreate"),
    (
        TEMPLATE,
        {"blockDeviceMappings": [{"ebs": {**EBS, "volumeType": "ssd"}}]},
        "blockDeviceMappings[0].ebs.volumeType",
    ),
    (
        TEMPLATE,
        {"blockDeviceMappings": [{"ebs": {**EBS, "throughput": 2000}}]},
        "blockDeviceMappings[0].ebs.throughput",
    ),
    (TEMPLATE, {"instanceMarketOptions": {"marketType": "block"}}, "instanceMarketOptions.marketType"),
    (TEMPLATE, {"networkInterfaces": [{"interfaceType": "ena"}]}, "networkInterfaces[0].interfaceType"),
    (TEMPLATE, {"tagSpecifications": [{"resourceType": "node"}]}, "tagSpecifications[0].resourceType"),
    (
        TEMPLATE,
        {
            "capacityReservationSpecification": {
                "capacityReservationPreference": "open",
                "capacityReservationTarget": {"capacityReservationId": "cr-1"},
            }
        },
        "capacityReservationSpecification.capacityReservationTarget",
    ),
    (ENDPOINT, {"vpcEndpointType": "gateway"}, "vpcEndpointType"),
    (ENDPOINT, {"serviceNetworkArn": "arn:aws:vpc-lattice:us-west-2:123456789012:servicenetwork/s"}, "serviceName"),
    (KEY, {"customerMasterKeySpec": "AES"}, "customerMasterKeySpec"),
    (KEY, {"keyUsage": "ENCRYPT"}, "keyUsage"),
    (KEY, {"rotationPeriodInDays": 90}, "rotationPeriodInDays"),
    (RULES, {"rules": [{"status": "Enabled"}]}, "rules[0].id"),
    (RULES, {"rules": [{**RULE, "status": "On"}]}, "rules[0].status"),
    (
        RULES,
        {"rules": [{**RULE, "noncurrentVersionExpiration": {"noncurrentDays": 0}}]},
        "rules[0].noncurrentVersionExpiration.noncurrentDays",
    ),
    (RULES, {"rules": []}, "rules"),
    (RULES, {"bucket": "b" * 64}, "bucket"),
    ("aws:ecr/lifecyclePolicy:LifecyclePolicy", {"policy": "rules"}, "policy"),
    (
        "aws:ec2/subnet:Subnet",
        {"availabilityZone": "us-west-2a", "availabilityZoneId": "usw2-az1"},
        "availabilityZone",
    ),
    (IMAGES, {"imageTagMutability": "FIXED"}, "imageTagMutability"),
    (IMAGES, {"encryptionConfigurations": [{"encryptionType": "RSA"}]}, "encryptionConfigurations[0].encryptionType"),
    (PLACEMENT, {"partitionCount": 2}, "partitionCount"),
]


@pytest.mark.parametrize(("type_", "change", "where"), AWS_RULES)
def test_check_refuses_what_awss_provider_refuses(type_: str, change: dict[str, Any], where: str) -> None:
    table = fact_table(type_)
    assert table is not None
    assert fact_check.findings(table, AWS_BASE[type_]) == []
    found = {each.property: str(each) for each in fact_check.findings(table, {**AWS_BASE[type_], **change})}
    assert "https://github.com/hashicorp/terraform-provider-aws/blob/" in found[where]


def test_check_takes_services_in_the_shared_address_space() -> None:
    table = fact_table(EKS_CLUSTER)
    assert table is not None
    services = {"kubernetesNetworkConfig": {"serviceIpv4Cidr": "100.64.0.0/16"}}
    assert fact_check.findings(table, {**AWS_BASE[EKS_CLUSTER], **services}) == []
