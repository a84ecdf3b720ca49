"""For each rule of AWS about inputs, a change of valid inputs that breaks it."""

from __future__ import annotations

from typing import Any

NODES = "aws:eks/nodeGroup:NodeGroup"
BROKEN: list[tuple[str, str, dict[str, Any]]] = [
    ("vpc-size", "aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/8"}),
    ("subnet-size", "aws:ec2/subnet:Subnet", {"cidrBlock": "10.0.0.0/29"}),
    ("subnet-zone", "aws:ec2/subnet:Subnet", {"availabilityZone": "us-east-1a"}),
    ("endpoint-service", "aws:ec2/vpcEndpoint:VpcEndpoint", {"serviceName": "com.amazonaws.us-east-1.s3"}),
    ("endpoint-service", "aws:ec2/vpcEndpoint:VpcEndpoint", {"serviceName": "com.amazonaws.us-west-2.ecr.api"}),
    ("placement-strategy", "aws:ec2/placementGroup:PlacementGroup", {"strategy": "close"}),
    ("user-data", "aws:ec2/launchTemplate:LaunchTemplate", {"userData": "#!/bin/sh"}),
    ("efa-interfaces", "aws:ec2/launchTemplate:LaunchTemplate", {"instanceType": "g4dn.xlarge"}),
    ("security-groups-once", "aws:ec2/launchTemplate:LaunchTemplate", {"vpcSecurityGroupIds": ["sg-1"]}),
    (
        "capacity-block",
        "aws:ec2/launchTemplate:LaunchTemplate",
        {"instanceMarketOptions": {"marketType": "capacity-block"}},
    ),
    ("eks-cluster-name", "aws:eks/cluster:Cluster", {"name": "c" * 101}),
    ("log-types", "aws:eks/cluster:Cluster", {"enabledClusterLogTypes": ["kubelet"]}),
    ("has-an-endpoint", "aws:eks/cluster:Cluster", {"vpcConfig": {"subnetIds": [], "endpointPublicAccess": False}}),
    ("node-group-name", NODES, {"nodeGroupName": "g" * 64}),
    ("scaling", NODES, {"scalingConfig": {"minSize": 3, "desiredSize": 2, "maxSize": 2}}),
    ("image-has-drivers", NODES, {"amiType": "AL2023_x86_64_STANDARD"}),
    ("disk-is-in-the-template", NODES, {"diskSize": 100}),
    ("addon-exists", "aws:eks/addon:Addon", {"addonName": "coredsn"}),
    ("access-entry", "aws:eks/accessEntry:AccessEntry", {"principalArn": "admin"}),
    ("role-name", "aws:iam/role:Role", {"name": "r" * 65}),
    ("trust-policy", "aws:iam/role:Role", {"assumeRolePolicy": "{"}),
    ("policy-document", "aws:iam/rolePolicy:RolePolicy", {"policy": "{}"}),
    (
        "managed-policy",
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        {"policyArn": "arn:aws:iam::aws:policy/Everything"},
    ),
    (
        "managed-policy",
        "aws:iam/rolePolicyAttachment:RolePolicyAttachment",
        {"policyArn": "arn:aws:iam::aws:policy/AmazonEKSWorkerNodeMinimalPolicy"},
    ),
    ("key-deletion", "aws:kms/key:Key", {"deletionWindowInDays": 1}),
    ("log-retention", "aws:cloudwatch/logGroup:LogGroup", {"retentionInDays": 31}),
    ("s3-bucket-name", "aws:s3/bucket:Bucket", {"bucket": "Bucket"}),
    ("repository-name", "aws:ecr/repository:Repository", {"name": "Train"}),
]
