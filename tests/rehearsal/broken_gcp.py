"""For each rule of Google Cloud about inputs, a change of valid inputs that breaks it."""

from __future__ import annotations

from typing import Any

from tests.rehearsal.good_inputs import GPU, T4_POOL, TPU_POOL

POOL = "gcp:container/nodePool:NodePool"
CONFIG = T4_POOL["nodeConfig"]
NETWORK = "gcp:compute/network:Network"
SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
ROUTER_NAT = "gcp:compute/routerNat:RouterNat"
CLUSTER = "gcp:container/cluster:Cluster"
IAMMEMBER = "gcp:serviceaccount/iAMMember:IAMMember"
BUCKET = "gcp:storage/bucket:Bucket"
BROKEN: list[tuple[str, str, str, dict[str, Any]]] = [
    ("compute_name", "name", NETWORK, {"name": "Vpc"}),
    ("compute_name", "name", NETWORK, {"name": "v" * 64}),
    ("network_mtu", "mtu", NETWORK, {"mtu": 9000}),
    ("range_size", "ipCidrRange", SUBNETWORK, {"ipCidrRange": "10.0.0.0/30"}),
    ("range_size", "ipCidrRange", SUBNETWORK, {"ipCidrRange": "10.0.0.1/20"}),
    ("ranges_of_subnet", "secondaryIpRanges[0].ipCidrRange", SUBNETWORK, {"ipCidrRange": "10.64.0.0/20"}),
    ("nat_ports", "minPortsPerVm", ROUTER_NAT, {"minPortsPerVm": 100}),
    ("nat_ports", "enableEndpointIndependentMapping", ROUTER_NAT, {"enableEndpointIndependentMapping": True}),
    ("cluster_name", "name", CLUSTER, {"name": "c" * 41}),
    ("location", "location", CLUSTER, {"location": "mars"}),
    ("location", "location", CLUSTER, {"location": ""}),
    ("location", "nodeLocations[0]", CLUSTER, {"nodeLocations": ["europe-west4-a"]}),
    ("release_channel", "releaseChannel.channel", CLUSTER, {"releaseChannel": {"channel": "FAST"}}),
    ("release_channel", "minMasterVersion", CLUSTER, {"minMasterVersion": "newest"}),
    (
        "control_plane_range",
        "privateClusterConfig.masterIpv4CidrBlock",
        CLUSTER,
        {"privateClusterConfig": {"masterIpv4CidrBlock": "172.16.0.0/24"}},
    ),
    (
        "workload_pool",
        "workloadIdentityConfig.workloadPool",
        CLUSTER,
        {"workloadIdentityConfig": {"workloadPool": "other.svc.id.goog"}},
    ),
    ("pods_per_node", "defaultMaxPodsPerNode", CLUSTER, {"defaultMaxPodsPerNode": 4}),
    ("has_first_nodes", "initialNodeCount", CLUSTER, {"initialNodeCount": None}),
    ("node_pool_name", "name", POOL, {"name": "p" * 41}),
    (
        "gpus_on_machine",
        "nodeConfig.guestAccelerators",
        POOL,
        {"nodeConfig": {**CONFIG, "guestAccelerators": [{**GPU, "count": 3}]}},
    ),
    (
        "gpus_on_machine",
        "nodeConfig.guestAccelerators",
        POOL,
        {"nodeConfig": {**CONFIG, "machineType": "e2-standard-4"}},
    ),
    (
        "gpu_driver_version",
        "nodeConfig.guestAccelerators[0].gpuDriverInstallationConfig.gpuDriverVersion",
        POOL,
        {"nodeConfig": {**CONFIG, "guestAccelerators": [{"type": "nvidia-tesla-t4", "count": 2}]}},
    ),
    (
        "tpu_topology",
        "placementPolicy.tpuTopology",
        POOL,
        {**TPU_POOL, "placementPolicy": {"type": "COMPACT", "tpuTopology": "3x3x3"}},
    ),
    (
        "tpu_topology",
        "placementPolicy.tpuTopology",
        POOL,
        {"placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x4"}},
    ),
    (
        "tpu_topology",
        "placementPolicy.tpuTopology",
        POOL,
        {**TPU_POOL, "placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x1"}, "nodeCount": 1},
    ),
    ("slice_is_whole", "nodeCount", POOL, {**TPU_POOL, "nodeCount": 3}),
    (
        "slice_is_whole",
        "autoscaling.totalMaxNodeCount",
        POOL,
        {**TPU_POOL, "nodeCount": None, "autoscaling": {"totalMaxNodeCount": 4}},
    ),
    ("compact_placement", "placementPolicy.type", POOL, {"placementPolicy": {"type": "COMPACT"}}),
    (
        "one_kind_of_capacity",
        "nodeConfig.reservationAffinity",
        POOL,
        {
            "nodeConfig": {
                **CONFIG,
                "spot": True,
                "reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION", "key": "k"},
            }
        },
    ),
    ("one_kind_of_capacity", "nodeConfig.spot", POOL, {"nodeConfig": {**CONFIG, "spot": True, "flexStart": True}}),
    ("flex_start", "management.autoRepair", POOL, {"nodeConfig": {**CONFIG, "flexStart": True}}),
    ("autoscaling_bounds", "autoscaling.minNodeCount", POOL, {"autoscaling": {"minNodeCount": 3, "maxNodeCount": 2}}),
    ("service_account_id", "accountId", "gcp:serviceaccount/account:Account", {"accountId": "a" * 31}),
    ("member_syntax", "member", IAMMEMBER, {"member": "everyone"}),
    ("role_exists", "role", IAMMEMBER, {"role": "roles/iam.workloadIdentityUsr"}),
    ("service_name", "service", "gcp:projects/service:Service", {"service": "container"}),
    ("bucket_name", "name", BUCKET, {"name": "google-bucket"}),
    ("bucket_name", "name", BUCKET, {"name": "B"}),
    ("storage_class", "storageClass", BUCKET, {"storageClass": "FAST"}),
    ("folders_need_uniform_access", "uniformBucketLevelAccess", BUCKET, {"uniformBucketLevelAccess": False}),
    (
        "soft_delete_days",
        "softDeletePolicy.retentionDurationSeconds",
        BUCKET,
        {"softDeletePolicy": {"retentionDurationSeconds": 86400}},
    ),
    ("repository_id", "repositoryId", "gcp:artifactregistry/repository:Repository", {"repositoryId": "Trainyard"}),
]
