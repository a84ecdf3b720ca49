"""Changes to valid inputs, each rejected by the Google provider, and the input that the provider reports."""

from __future__ import annotations

from typing import Any

from tests.rehearsal.valid_inputs import PROJECT

POOL, CLUSTER = "gcp:container/nodePool:NodePool", "gcp:container/cluster:Cluster"
FIREWALL, NETWORK = "gcp:compute/firewall:Firewall", "gcp:compute/network:Network"
NAT, SUBNET = "gcp:compute/routerNat:RouterNat", "gcp:compute/subnetwork:Subnetwork"
POLICY = "gcp:compute/resourcePolicy:ResourcePolicy"
GOOGLE_REJECTIONS: list[tuple[str, dict[str, Any], str]] = [
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
    (CLUSTER, {"releaseChannel": "RAPID"}, "releaseChannel"),
    (CLUSTER, {"resourceLabels": "team"}, "resourceLabels"),
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
        {"workloadPolicy": {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "4x4", "maxTopologyDistance": "BLOCK"}},
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
"""Resource type, changed inputs, and the input that the provider reports. None removes an input."""
GOOGLE_BASE: dict[str, dict[str, Any]] = {
    FIREWALL: {
        "project": PROJECT,
        "name": "inside",
        "network": "vpc",
        "direction": "INGRESS",
        "sourceRanges": ["10.0.0.0/8"],
        "allows": [{"protocol": "tcp"}],
    },
    POLICY: {"project": PROJECT, "region": "us-central1", "name": "close"},
}
"""Resource type that valid_inputs.py lacks -> valid inputs to change."""
