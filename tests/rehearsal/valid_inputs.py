"""Valid inputs of cloud resources."""

from __future__ import annotations

import json
from typing import Any

PROJECT = "some-project"
TRUST = {"Effect": "Allow", "Principal": {"Service": "eks.amazonaws.com"}, "Action": ["sts:AssumeRole"]}
TRUST_POLICY = json.dumps({"Version": "2012-10-17", "Statement": [TRUST]})
READ_OBJECTS = {"Effect": "Allow", "Action": ["s3:GetObject"], "Resource": ["*"]}
ROLE_POLICY = json.dumps({"Version": "2012-10-17", "Statement": [READ_OBJECTS]})
TWO_T4 = {"type": "nvidia-tesla-t4", "count": 2, "gpuDriverInstallationConfig": {"gpuDriverVersion": "DEFAULT"}}
T4_POOL: dict[str, Any] = {
    "project": PROJECT,
    "location": "us-central1-a",
    "nodeLocations": ["us-central1-a"],
    "cluster": "train",
    "name": "gpus",
    "nodeCount": 2,
    "nodeConfig": {"machineType": "n1-standard-4", "guestAccelerators": [TWO_T4], "diskSizeGb": 100},
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
GKE_CLUSTER: dict[str, Any] = {
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
NODE_GROUP: dict[str, Any] = {
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
VALID_INPUTS: dict[str, dict[str, Any]] = {
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
    "gcp:container/cluster:Cluster": GKE_CLUSTER,
    "gcp:container/nodePool:NodePool": T4_POOL,
    "gcp:serviceaccount/account:Account": {"project": PROJECT, "accountId": "train-nodes"},
    "gcp:serviceaccount/iAMMember:IAMMember": {
        "serviceAccountId": f"projects/{PROJECT}/serviceAccounts/train-jobs@{PROJECT}.iam.gserviceaccount.com",
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
    "aws:ec2/placementGroup:PlacementGroup": {"name": "gpus", "strategy": "cluster"},
    "aws:ec2/launchTemplate:LaunchTemplate": {
        "instanceType": "p5.48xlarge",
        "userData": "bm90aGluZw==",
        "networkInterfaces": [{"interfaceType": "efa", "networkCardIndex": 0}],
    },
    "aws:eks/cluster:Cluster": {
        "name": "train",
        "roleArn": "arn:aws:iam::123456789012:role/eks",
        "version": "1.34",
        "enabledClusterLogTypes": ["api"],
        "kubernetesNetworkConfig": {"serviceIpv4Cidr": "172.20.0.0/16"},
        "vpcConfig": {"subnetIds": ["subnet-1", "subnet-2"], "endpointPrivateAccess": True},
    },
    "aws:eks/nodeGroup:NodeGroup": NODE_GROUP,
    "aws:eks/addon:Addon": {"clusterName": "train", "addonName": "coredns"},
    "aws:eks/accessEntry:AccessEntry": {"clusterName": "train", "principalArn": "arn:aws:iam::123456789012:role/admin"},
    "aws:eks/podIdentityAssociation:PodIdentityAssociation": {
        "clusterName": "train",
        "namespace": "training",
        "serviceAccount": "trainer",
        "roleArn": "arn:aws:iam::123456789012:role/pods",
    },
    "aws:iam/role:Role": {"name": "nodes", "assumeRolePolicy": TRUST_POLICY},
    "aws:iam/rolePolicy:RolePolicy": {"role": "nodes", "policy": ROLE_POLICY},
    "aws:iam/rolePolicyAttachment:RolePolicyAttachment": {
        "role": "nodes",
        "policyArn": "arn:aws:iam::aws:policy/AmazonEKSClusterPolicy",
    },
    "aws:kms/key:Key": {"deletionWindowInDays": 7},
    "aws:cloudwatch/logGroup:LogGroup": {"name": "/aws/eks/train/cluster", "retentionInDays": 30},
    "aws:s3/bucket:Bucket": {"bucket": "train-bucket"},
    "aws:ecr/repository:Repository": {"name": "train/image"},
}
"""Resource type -> valid inputs."""
