"""For each rule of AWS about inputs, a change of valid inputs that breaks it."""

from __future__ import annotations

from typing import Any

NODES = "aws:eks/nodeGroup:NodeGroup"
SUBNET = "aws:ec2/subnet:Subnet"
VPC_ENDPOINT = "aws:ec2/vpcEndpoint:VpcEndpoint"
LAUNCH_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
CLUSTER = "aws:eks/cluster:Cluster"
ROLE = "aws:iam/role:Role"
ROLE_POLICY_ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
BROKEN: list[tuple[str, str, str, dict[str, Any]]] = [
    ("vpc_size", "cidrBlock", "aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/8"}),
    ("subnet_size", "cidrBlock", SUBNET, {"cidrBlock": "10.0.0.0/29"}),
    ("subnet_zone", "availabilityZone", SUBNET, {"availabilityZone": "us-east-1a"}),
    ("endpoint_service", "serviceName", VPC_ENDPOINT, {"serviceName": "com.amazonaws.us-east-1.s3"}),
    ("endpoint_service", "vpcEndpointType", VPC_ENDPOINT, {"serviceName": "com.amazonaws.us-west-2.ecr.api"}),
    ("placement_strategy", "strategy", "aws:ec2/placementGroup:PlacementGroup", {"strategy": "close"}),
    ("user_data", "userData", LAUNCH_TEMPLATE, {"userData": "#!/bin/sh"}),
    ("efa_interfaces", "networkInterfaces", LAUNCH_TEMPLATE, {"instanceType": "g4dn.xlarge"}),
    ("security_groups_once", "vpcSecurityGroupIds", LAUNCH_TEMPLATE, {"vpcSecurityGroupIds": ["sg-1"]}),
    (
        "capacity_block",
        "capacityReservationSpecification",
        LAUNCH_TEMPLATE,
        {"instanceMarketOptions": {"marketType": "capacity-block"}},
    ),
    ("eks_cluster_name", "name", CLUSTER, {"name": "c" * 101}),
    ("log_types", "enabledClusterLogTypes", CLUSTER, {"enabledClusterLogTypes": ["kubelet"]}),
    (
        "has_an_endpoint",
        "vpcConfig.endpointPrivateAccess",
        CLUSTER,
        {"vpcConfig": {"subnetIds": [], "endpointPublicAccess": False}},
    ),
    ("node_group_name", "nodeGroupName", NODES, {"nodeGroupName": "g" * 64}),
    ("scaling", "scalingConfig", NODES, {"scalingConfig": {"minSize": 3, "desiredSize": 2, "maxSize": 2}}),
    ("image_has_drivers", "amiType", NODES, {"amiType": "AL2023_x86_64_STANDARD"}),
    ("disk_is_in_the_template", "diskSize", NODES, {"diskSize": 100}),
    ("addon_exists", "addonName", "aws:eks/addon:Addon", {"addonName": "coredsn"}),
    ("access_entry", "principalArn", "aws:eks/accessEntry:AccessEntry", {"principalArn": "admin"}),
    ("role_name", "name", ROLE, {"name": "r" * 65}),
    ("trust_policy", "assumeRolePolicy", ROLE, {"assumeRolePolicy": "{"}),
    ("policy_document", "policy", "aws:iam/rolePolicy:RolePolicy", {"policy": "{}"}),
    ("managed_policy", "policyArn", ROLE_POLICY_ATTACHMENT, {"policyArn": "arn:aws:iam::aws:policy/Everything"}),
    (
        "managed_policy",
        "policyArn",
        ROLE_POLICY_ATTACHMENT,
        {"policyArn": "arn:aws:iam::aws:policy/AmazonEKSWorkerNodeMinimalPolicy"},
    ),
    ("key_deletion", "deletionWindowInDays", "aws:kms/key:Key", {"deletionWindowInDays": 1}),
    ("log_retention", "retentionInDays", "aws:cloudwatch/logGroup:LogGroup", {"retentionInDays": 31}),
    ("s3_bucket_name", "bucket", "aws:s3/bucket:Bucket", {"bucket": "Bucket"}),
    ("repository_name", "name", "aws:ecr/repository:Repository", {"name": "Train"}),
]
