"""Changes to valid inputs, each rejected by the AWS provider, and the input that the provider reports."""

from __future__ import annotations

from typing import Any

EKS_CLUSTER, NODE_GROUP = "aws:eks/cluster:Cluster", "aws:eks/nodeGroup:NodeGroup"
TEMPLATE, ADDON = "aws:ec2/launchTemplate:LaunchTemplate", "aws:eks/addon:Addon"
RULES = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"
KEY, ENDPOINT, PLACEMENT = "aws:kms/key:Key", "aws:ec2/vpcEndpoint:VpcEndpoint", "aws:ec2/placementGroup:PlacementGroup"
ENTRY, IMAGES = "aws:eks/accessEntry:AccessEntry", "aws:ecr/repository:Repository"
SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
TAINT = {"key": "gpu", "value": "present", "effect": "NO_SCHEDULE"}
RULE = {"id": "old", "status": "Enabled", "expiration": {"days": 3}}
EBS = {"volumeSize": 100, "volumeType": "gp3"}
AWS_BASE: dict[str, dict[str, Any]] = {
    NODE_GROUP: {
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
    SECURITY_GROUP: {"vpcId": "vpc-1"},
    "aws:ecr/lifecyclePolicy:LifecyclePolicy": {"repository": "train", "policy": "{}"},
    "aws:ec2/subnet:Subnet": {"vpcId": "vpc-1", "cidrBlock": "10.0.0.0/20"},
}
"""Resource type -> valid inputs to change. Other types have their valid inputs in valid_inputs.py."""
AWS_REJECTIONS: list[tuple[str, dict[str, Any], str]] = [
    (NODE_GROUP, {"amiType": "AL2023"}, "amiType"),
    (NODE_GROUP, {"capacityType": "BLOCK"}, "capacityType"),
    (NODE_GROUP, {"taints": [{**TAINT, "effect": "NoSchedule"}]}, "taints[0].effect"),
    (NODE_GROUP, {"taints": [{**TAINT, "key": "k" * 64}]}, "taints[0].key"),
    (NODE_GROUP, {"taints": [{**TAINT, "value": "v" * 64}]}, "taints[0].value"),
    (NODE_GROUP, {"taints": [{**TAINT, "key": f"k{n}"} for n in range(51)]}, "taints"),
    (NODE_GROUP, {"updateConfig": {}}, "updateConfig.maxUnavailable"),
    (
        NODE_GROUP,
        {"updateConfig": {"maxUnavailable": 1, "maxUnavailablePercentage": 10}},
        "updateConfig.maxUnavailablePercentage",
    ),
    (NODE_GROUP, {"updateConfig": {"maxUnavailable": 101}}, "updateConfig.maxUnavailable"),
    (NODE_GROUP, {"launchTemplate": {"id": "template", "version": "1"}}, "launchTemplate.id"),
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
        {"blockDeviceMappings": [{"ebs": {**EBS, "throughput": 2001}}]},
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
    ("aws:ec2/subnet:Subnet", {"availabilityZone": "us-west-2a", "availabilityZoneId": "usw2-az1"}, "availabilityZone"),
    (IMAGES, {"imageTagMutability": "FIXED"}, "imageTagMutability"),
    (IMAGES, {"encryptionConfigurations": [{"encryptionType": "RSA"}]}, "encryptionConfigurations[0].encryptionType"),
    (PLACEMENT, {"partitionCount": 2}, "partitionCount"),
    (SECURITY_GROUP, {"name": "sg-1"}, "name"),
    (SECURITY_GROUP, {"name": "x" * 256}, "name"),
]
"""Resource type, changed inputs, and the input that the provider reports."""
