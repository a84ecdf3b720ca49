"""Every rule of the simulated clouds: inputs that keep all of them, and for each rule a change that breaks it."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from rehearsal.cloud import checking
from rehearsal.cloud.findings import Rule
from rehearsal.cloud.kinds import KINDS
from rehearsal.cloud.state import CloudState, Record

PROJECT = "some-project"
TRUST = {"Effect": "Allow", "Principal": {"Service": "eks.amazonaws.com"}, "Action": ["sts:AssumeRole"]}
POLICY = json.dumps({"Version": "2012-10-17", "Statement": [TRUST]})
GPU = {
    "type": "nvidia-tesla-t4",
    "count": 2,
    "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"},
}
T4_POOL: dict[str, Any] = {
    "project": PROJECT,
    "location": "us-central1-a",
    "nodeLocations": ["us-central1-a"],
    "cluster": "train",
    "name": "gpus",
    "nodeCount": 2,
    "nodeConfig": {"machineType": "n1-standard-4", "guestAccelerators": [GPU], "diskSizeGb": 100},
}
TPU_POOL: dict[str, Any] = {
    "project": PROJECT,
    "location": "us-central2-b",
    "nodeLocations": ["us-central2-b"],
    "cluster": "train",
    "name": "v4",
    "nodeCount": 4,
    "placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x4"},
    "nodeConfig": {"machineType": "ct4p-hightpu-4t", "spot": True},
}
SUBNET: dict[str, Any] = {
    "project": PROJECT,
    "region": "us-central1",
    "name": "nodes",
    "network": "vpc",
    "ipCidrRange": "10.0.0.0/20",
    "secondaryIpRanges": [
        {"rangeName": "pods", "ipCidrRange": "10.64.0.0/16"},
        {"rangeName": "services", "ipCidrRange": "10.32.0.0/20"},
    ],
}
CLUSTER: dict[str, Any] = {
    "project": PROJECT,
    "location": "us-central1-a",
    "name": "train",
    "network": "vpc",
    "subnetwork": "nodes",
    "initialNodeCount": 1,
    "removeDefaultNodePool": True,
    "releaseChannel": {"channel": "REGULAR"},
    "ipAllocationPolicy": {"clusterSecondaryRangeName": "pods", "servicesSecondaryRangeName": "services"},
    "privateClusterConfig": {"enablePrivateNodes": True, "masterIpv4CidrBlock": "172.16.0.0/28"},
    "workloadIdentityConfig": {"workloadPool": f"{PROJECT}.svc.id.goog"},
}
GROUP: dict[str, Any] = {
    "region": "us-west-2",
    "clusterName": "train",
    "nodeGroupName": "gpus",
    "nodeRoleArn": "nodes",
    "subnetIds": ["subnet-1"],
    "amiType": "AL2023_x86_64_NVIDIA",
    "instanceTypes": ["g4dn.12xlarge"],
    "scalingConfig": {"minSize": 2, "desiredSize": 2, "maxSize": 2},
    "launchTemplate": {"id": "lt-1", "version": "1"},
}
GOOD: dict[str, dict[str, Any]] = {
    "gcp:compute/network:Network": {"project": PROJECT, "name": "vpc", "mtu": 8896},
    "gcp:compute/subnetwork:Subnetwork": SUBNET,
    "gcp:compute/routerNat:RouterNat": {
        "router": "vpc",
        "name": "vpc",
        "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
        "enableDynamicPortAllocation": True,
        "minPortsPerVm": 64,
        "maxPortsPerVm": 8192,
    },
    "gcp:container/cluster:Cluster": CLUSTER,
    "gcp:container/nodePool:NodePool": T4_POOL,
    "gcp:serviceaccount/account:Account": {"project": PROJECT, "accountId": "train-nodes"},
    "gcp:serviceaccount/iAMMember:IAMMember": {
        "serviceAccountId": "train-jobs",
        "role": "roles/iam.workloadIdentityUser",
        "member": f"serviceAccount:{PROJECT}.svc.id.goog[training/trainer]",
    },
    "gcp:projects/service:Service": {"service": "container.googleapis.com"},
    "gcp:storage/bucket:Bucket": {
        "name": "train-bucket",
        "location": "us-central1",
        "storageClass": "STANDARD",
        "uniformBucketLevelAccess": True,
        "hierarchicalNamespace": {"enabled": True},
        "softDeletePolicy": {"retentionDurationSeconds": 604800},
    },
    "gcp:artifactregistry/repository:Repository": {"repositoryId": "trainyard", "format": "DOCKER"},
    "aws:ec2/vpc:Vpc": {"cidrBlock": "10.0.0.0/16"},
    "aws:ec2/subnet:Subnet": {
        "region": "us-west-2",
        "vpcId": "vpc-1",
        "cidrBlock": "10.0.0.0/20",
        "availabilityZone": "us-west-2a",
    },
    "aws:ec2/vpcEndpoint:VpcEndpoint": {
        "region": "us-west-2",
        "vpcId": "vpc-1",
        "serviceName": "com.amazonaws.us-west-2.s3",
        "vpcEndpointType": "Gateway",
    },
    "aws:ec2/placementGroup:PlacementGroup": {"strategy": "cluster"},
    "aws:ec2/launchTemplate:LaunchTemplate": {
        "instanceType": "p5.48xlarge",
        "userData": "bm90aGluZw==",
        "networkInterfaces": [{"interfaceType": "efa", "networkCardIndex": 0}],
    },
    "aws:eks/cluster:Cluster": {
        "name": "train",
        "roleArn": "eks",
        "version": "1.34",
        "enabledClusterLogTypes": ["api"],
        "kubernetesNetworkConfig": {"serviceIpv4Cidr": "172.20.0.0/16"},
        "vpcConfig": {"subnetIds": ["subnet-1", "subnet-2"], "endpointPrivateAccess": True},
    },
    "aws:eks/nodeGroup:NodeGroup": GROUP,
    "aws:eks/addon:Addon": {"clusterName": "train", "addonName": "coredns"},
    "aws:eks/accessEntry:AccessEntry": {
        "clusterName": "train",
        "principalArn": "arn:aws:iam::123456789012:role/admin",
    },
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": {
        "clusterName": "train",
        "namespace": "training",
        "serviceAccount": "trainer",
        "roleArn": "pods",
    },
    "aws:iam/role:Role": {"name": "nodes", "assumeRolePolicy": POLICY},
    "aws:iam/rolePolicy:RolePolicy": {"role": "nodes", "policy": POLICY},
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": {
        "role": "nodes",
        "policyArn": "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy",
    },
    "aws:kms/key:Key": {"deletionWindowInDays": 7},
    "aws:cloudwatch/logGroup:LogGroup": {"name": "/aws/eks/train/cluster", "retentionInDays": 30},
    "aws:s3/bucket:Bucket": {"bucket": "train-bucket"},
    "aws:ecr/repository:Repository": {"name": "train/image"},
}

Change = dict[str, Any]
POOL, NODES = "gcp:container/nodePool:NodePool", "aws:eks/nodeGroup:NodeGroup"
CONFIG = T4_POOL["nodeConfig"]
BROKEN: list[tuple[str, str, Change]] = [
    ("compute-name", "gcp:compute/network:Network", {"name": "Vpc"}),
    ("compute-name", "gcp:compute/network:Network", {"name": "v" * 64}),
    ("network-mtu", "gcp:compute/network:Network", {"mtu": 9000}),
    ("range-size", "gcp:compute/subnetwork:Subnetwork", {"ipCidrRange": "10.0.0.0/30"}),
    ("range-size", "gcp:compute/subnetwork:Subnetwork", {"ipCidrRange": "10.0.0.1/20"}),
    ("ranges-of-subnet", "gcp:compute/subnetwork:Subnetwork", {"ipCidrRange": "10.64.0.0/20"}),
    ("nat-ports", "gcp:compute/routerNat:RouterNat", {"minPortsPerVm": 100}),
    ("nat-ports", "gcp:compute/routerNat:RouterNat", {"enableEndpointIndependentMapping": True}),
    ("cluster-name", "gcp:container/cluster:Cluster", {"name": "c" * 41}),
    ("location", "gcp:container/cluster:Cluster", {"location": "mars"}),
    ("location", "gcp:container/cluster:Cluster", {"nodeLocations": ["europe-west4-a"]}),
    ("release-channel", "gcp:container/cluster:Cluster", {"releaseChannel": {"channel": "FAST"}}),
    ("release-channel", "gcp:container/cluster:Cluster", {"minMasterVersion": "newest"}),
    ("control-plane-range", "gcp:container/cluster:Cluster", {"privateClusterConfig": {"masterIpv4CidrBlock": "172.16.0.0/24"}}),
    ("workload-pool", "gcp:container/cluster:Cluster", {"workloadIdentityConfig": {"workloadPool": "other.svc.id.goog"}}),
    ("pods-per-node", "gcp:container/cluster:Cluster", {"defaultMaxPodsPerNode": 4}),
    ("has-first-nodes", "gcp:container/cluster:Cluster", {"initialNodeCount": None}),
    ("node-pool-name", POOL, {"name": "p" * 41}),
    ("machine-type", POOL, {"nodeConfig": {"machineType": "n1-standart-4"}}),
    ("gpus-on-machine", POOL, {"nodeConfig": {**CONFIG, "guestAccelerators": [{**GPU, "count": 3}]}}),
    ("gpus-on-machine", POOL, {"nodeConfig": {**CONFIG, "machineType": "e2-standard-4"}}),
    ("gpu-in-zone", POOL, {"nodeLocations": ["us-central2-b"], "location": "us-central2-b"}),
    ("gpu-driver-version", POOL, {"nodeConfig": {**CONFIG, "guestAccelerators": [{"type": "nvidia-tesla-t4", "count": 2}]}}),
    ("tpu-in-zone", POOL, {**TPU_POOL, "location": "us-east1-b", "nodeLocations": ["us-east1-b"]}),
    ("tpu-topology", POOL, {**TPU_POOL, "placementPolicy": {"type": "COMPACT", "tpuTopology": "3x3x3"}}),
    ("tpu-topology", POOL, {"placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x4"}}),
    ("tpu-topology", POOL, {**TPU_POOL, "placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x1"}, "nodeCount": 1}),
    ("slice-is-whole", POOL, {**TPU_POOL, "nodeCount": 3}),
    ("slice-is-whole", POOL, {**TPU_POOL, "nodeCount": None, "autoscaling": {"totalMaxNodeCount": 4}}),
    ("compact-placement", POOL, {"placementPolicy": {"type": "COMPACT"}}),
    ("one-kind-of-capacity", POOL, {"nodeConfig": {**CONFIG, "spot": True, "reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION", "key": "k"}}}),
    ("one-kind-of-capacity", POOL, {"nodeConfig": {**CONFIG, "spot": True, "flexStart": True}}),
    ("flex-start", POOL, {"nodeConfig": {**CONFIG, "flexStart": True}}),
    ("flex-start", POOL, {**TPU_POOL, "nodeConfig": {"machineType": "ct4p-hightpu-4t", "flexStart": True}, "management": {"autoRepair": False}}),
    ("autoscaling-bounds", POOL, {"autoscaling": {"minNodeCount": 3, "maxNodeCount": 2}}),
    ("service-account-id", "gcp:serviceaccount/account:Account", {"accountId": "a" * 31}),
    ("member-syntax", "gcp:serviceaccount/iAMMember:IAMMember", {"member": "everyone"}),
    ("role-exists", "gcp:serviceaccount/iAMMember:IAMMember", {"role": "roles/iam.workloadIdentityUsr"}),
    ("service-name", "gcp:projects/service:Service", {"service": "container"}),
    ("bucket-name", "gcp:storage/bucket:Bucket", {"name": "google-bucket"}),
    ("bucket-name", "gcp:storage/bucket:Bucket", {"name": "B"}),
    ("storage-class", "gcp:storage/bucket:Bucket", {"storageClass": "FAST"}),
    ("folders-need-uniform-access", "gcp:storage/bucket:Bucket", {"uniformBucketLevelAccess": False}),
    ("soft-delete-days", "gcp:storage/bucket:Bucket", {"softDeletePolicy": {"retentionDurationSeconds": 86400}}),
    ("repository-id", "gcp:artifactregistry/repository:Repository", {"repositoryId": "Trainyard"}),
    ("vpc-size", "aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/8"}),
    ("subnet-size", "aws:ec2/subnet:Subnet", {"cidrBlock": "10.0.0.0/29"}),
    ("subnet-zone", "aws:ec2/subnet:Subnet", {"availabilityZone": "us-east-1a"}),
    ("endpoint-service", "aws:ec2/vpcEndpoint:VpcEndpoint", {"serviceName": "com.amazonaws.us-east-1.s3"}),
    ("endpoint-service", "aws:ec2/vpcEndpoint:VpcEndpoint", {"serviceName": "com.amazonaws.us-west-2.ecr.api"}),
    ("placement-strategy", "aws:ec2/placementGroup:PlacementGroup", {"strategy": "close"}),
    ("user-data", "aws:ec2/launchTemplate:LaunchTemplate", {"userData": "#!/bin/sh"}),
    ("efa-interfaces", "aws:ec2/launchTemplate:LaunchTemplate", {"instanceType": "g4dn.xlarge"}),
    ("security-groups-once", "aws:ec2/launchTemplate:LaunchTemplate", {"vpcSecurityGroupIds": ["sg-1"]}),
    ("capacity-block", "aws:ec2/launchTemplate:LaunchTemplate", {"instanceMarketOptions": {"marketType": "capacity-block"}}),
    ("eks-cluster-name", "aws:eks/cluster:Cluster", {"name": "c" * 101}),
    ("eks-version", "aws:eks/cluster:Cluster", {"version": "1.34.2"}),
    ("log-types", "aws:eks/cluster:Cluster", {"enabledClusterLogTypes": ["kubelet"]}),
    ("has-an-endpoint", "aws:eks/cluster:Cluster", {"vpcConfig": {"subnetIds": [], "endpointPublicAccess": False}}),
    ("service-range", "aws:eks/cluster:Cluster", {"kubernetesNetworkConfig": {"serviceIpv4Cidr": "8.8.8.0/24"}}),
    ("node-group-name", NODES, {"nodeGroupName": "g" * 64}),
    ("scaling", NODES, {"scalingConfig": {"minSize": 3, "desiredSize": 2, "maxSize": 2}}),
    ("instance-type", NODES, {"instanceTypes": ["g4dn.13xlarge"]}),
    ("image-has-drivers", NODES, {"amiType": "AL2023_x86_64_STANDARD"}),
    ("disk-is-in-the-template", NODES, {"diskSize": 100}),
    ("addon-exists", "aws:eks/addon:Addon", {"addonName": "coredsn"}),
    ("access-entry", "aws:eks/accessEntry:AccessEntry", {"principalArn": "admin"}),
    ("role-name", "aws:iam/role:Role", {"name": "r" * 65}),
    ("trust-policy", "aws:iam/role:Role", {"assumeRolePolicy": "{"}),
    ("policy-document", "aws:iam/rolePolicy:RolePolicy", {"policy": "{}"}),
    ("managed-policy", "aws:iam/rolePolicyAttachment:RolePolicyAttachment", {"policyArn": "arn:aws:iam::aws:policy/Everything"}),
    ("key-deletion", "aws:kms/key:Key", {"deletionWindowInDays": 1}),
    ("log-retention", "aws:cloudwatch/logGroup:LogGroup", {"retentionInDays": 31}),
    ("s3-bucket-name", "aws:s3/bucket:Bucket", {"bucket": "Bucket"}),
    ("repository-name", "aws:ecr/repository:Repository", {"name": "Train"}),
]  # fmt: skip


def changed(type_: str, change: Change) -> dict[str, Any]:
    return {key: value for key, value in {**copy.deepcopy(GOOD[type_]), **change}.items() if value is not None}


def rules_in(kinds: Any) -> list[Rule]:
    return [rule for kind in kinds.values() for rule in kind.rules]


@pytest.mark.parametrize("type_", GOOD)
def test_good_inputs_break_no_rule(type_: str) -> None:
    assert [str(each) for each in checking.findings(type_, GOOD[type_])] == []


def test_a_good_slice_breaks_no_rule() -> None:
    assert [str(each) for each in checking.findings(POOL, TPU_POOL)] == []


@pytest.mark.parametrize(("rule", "type_", "change"), BROKEN)
def test_each_rule_is_broken_by_its_change(rule: str, type_: str, change: Change) -> None:
    found = checking.findings(type_, changed(type_, change))
    assert rule in {each.rule for each in found}
    assert all(each.source.startswith("https://") for each in found)


def test_every_rule_over_inputs_has_a_test_that_breaks_it() -> None:
    rules = {rule.name for rule in rules_in(KINDS) if not rule.looks_at_cloud}
    assert rules - {name for name, _, _ in BROKEN} == set()


@pytest.mark.parametrize(
    ("type_", "inputs", "words"),
    [
        ("gcp:container/cluster:Cluster", {**CLUSTER, "nme": "x"}, "did you mean name"),
        ("gcp:container/cluster:Cluster", {**CLUSTER, "initialNodeCount": "3"}, "a whole number"),
        ("gcp:serviceaccount/iAMMember:IAMMember", {"role": "roles/viewer"}, "is missing"),
        ("gcp:container/nodePool:NodePool", {**T4_POOL, "nodeConfig": {"machine_type": "x"}}, "did you mean machineType"),
        ("aws:eks/cluster:Cluster", {"roleArn": "r", "vpcConfig": {"subnetIds": "x"}}, "must be a list"),
        ("aws:iam/role:Role", {"assumeRolePolicy": POLICY, "tags": {"a": 1}}, "must be text"),
    ],
)
def test_inputs_are_held_to_the_sdks_own_classes(type_: str, inputs: dict[str, Any], words: str) -> None:
    found = checking.findings(type_, inputs)
    assert any(words in each.reason and each.rule == "provider-schema" for each in found), list(map(str, found))


def record(type_: str, id_: str, **inputs: Any) -> Record:
    return Record(id=id_, type=type_, urn="", inputs=inputs, outputs=dict(inputs))


TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
ADMISSIONS: list[tuple[str, str, dict[str, Any], list[Record]]] = [
    ("ranges-of-network", "gcp:compute/subnetwork:Subnetwork", {**SUBNET, "name": "more"},
     [record("gcp:compute/subnetwork:Subnetwork", "nodes", **SUBNET)]),
    ("secondary-ranges-exist", "gcp:container/cluster:Cluster", {**CLUSTER, "ipAllocationPolicy": {"clusterSecondaryRangeName": "pots"}},
     [record("gcp:compute/subnetwork:Subnetwork", "nodes", **SUBNET)]),
    ("control-plane-apart", "gcp:container/cluster:Cluster", {**CLUSTER, "privateClusterConfig": {"masterIpv4CidrBlock": "10.64.0.0/28"}},
     [record("gcp:compute/subnetwork:Subnetwork", "nodes", **SUBNET)]),
    ("pod-range-is-large-enough", POOL, {**T4_POOL, "nodeCount": 257},
     [record("gcp:compute/subnetwork:Subnetwork", "nodes", **SUBNET), record("gcp:container/cluster:Cluster", "train", **CLUSTER)]),
    ("workload-pool-exists", "gcp:serviceaccount/iAMMember:IAMMember", GOOD["gcp:serviceaccount/iAMMember:IAMMember"], []),
    ("subnet-in-vpc", "aws:ec2/subnet:Subnet", {"vpcId": "vpc-1", "cidrBlock": "10.9.0.0/20"},
     [record("aws:ec2/vpc:Vpc", "vpc-1", cidrBlock="10.0.0.0/16")]),
    ("subnets-in-two-zones", "aws:eks/cluster:Cluster", GOOD["aws:eks/cluster:Cluster"],
     [record("aws:ec2/subnet:Subnet", "subnet-1", availabilityZone="us-west-2a")]),
    ("cluster-role", "aws:eks/cluster:Cluster", GOOD["aws:eks/cluster:Cluster"],
     [record("aws:iam/role:Role", "eks", assumeRolePolicy=POLICY.replace("eks.amazonaws.com", "ec2.amazonaws.com"))]),
    ("fabric-on-type-and-zone", NODES, GROUP,
     [record(TEMPLATE, "lt-1", networkInterfaces=[{"interfaceType": "efa"}, {"interfaceType": "efa-only"}])]),
    ("node-role", NODES, GROUP, [record("aws:iam/role:Role", "nodes", assumeRolePolicy=POLICY)]),
    ("addon-has-nodes", "aws:eks/addon:Addon", GOOD["aws:eks/addon:Addon"], []),
    ("pod-role", "aws:eks/podIdentityAssociation:PodIdentityAssociation",
     GOOD["aws:eks/podIdentityAssociation:PodIdentityAssociation"],
     [record("aws:iam/role:Role", "pods", assumeRolePolicy=POLICY.replace("eks.amazonaws.com", "ec2.amazonaws.com"))]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "type_", "inputs", "existing"), ADMISSIONS)
def test_each_rule_over_the_cloud_is_broken(
    name: str, type_: str, inputs: dict[str, Any], existing: list[Record]
) -> None:
    state = CloudState(resources={each.id: each for each in existing})
    [rule] = [each for each in KINDS[type_].rules if each.name == name]
    assert rule.findings(inputs, state)


def test_every_rule_over_the_cloud_has_a_test_that_breaks_it() -> None:
    assert {rule.name for rule in rules_in(KINDS) if rule.looks_at_cloud} - {name for name, *_ in ADMISSIONS} == set()
