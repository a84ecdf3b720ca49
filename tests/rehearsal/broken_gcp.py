"""For each rule of Google Cloud about inputs, a change of valid inputs that breaks it."""

from __future__ import annotations

from typing import Any

from tests.rehearsal.good_inputs import GPU, T4_POOL, TPU_POOL

POOL = "gcp:container/nodePool:NodePool"
CONFIG = T4_POOL["nodeConfig"]
BROKEN: list[tuple[str, str, dict[str, Any]]] = [
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
    ("location", "gcp:container/cluster:Cluster", {"location": ""}),
    ("location", "gcp:container/cluster:Cluster", {"nodeLocations": ["europe-west4-a"]}),
    ("release-channel", "gcp:container/cluster:Cluster", {"releaseChannel": {"channel": "FAST"}}),
    ("release-channel", "gcp:container/cluster:Cluster", {"minMasterVersion": "newest"}),
    (
        "control-plane-range",
        "gcp:container/cluster:Cluster",
        {"privateClusterConfig": {"masterIpv4CidrBlock": "172.16.0.0/24"}},
    ),
    (
        "workload-pool",
        "gcp:container/cluster:Cluster",
        {"workloadIdentityConfig": {"workloadPool": "other.svc.id.goog"}},
    ),
    ("pods-per-node", "gcp:container/cluster:Cluster", {"defaultMaxPodsPerNode": 4}),
    ("has-first-nodes", "gcp:container/cluster:Cluster", {"initialNodeCount": None}),
    ("node-pool-name", POOL, {"name": "p" * 41}),
    ("gpus-on-machine", POOL, {"nodeConfig": {**CONFIG, "guestAccelerators": [{**GPU, "count": 3}]}}),
    ("gpus-on-machine", POOL, {"nodeConfig": {**CONFIG, "machineType": "e2-standard-4"}}),
    (
        "gpu-driver-version",
        POOL,
        {"nodeConfig": {**CONFIG, "guestAccelerators": [{"type": "nvidia-tesla-t4", "count": 2}]}},
    ),
    ("tpu-topology", POOL, {**TPU_POOL, "placementPolicy": {"type": "COMPACT", "tpuTopology": "3x3x3"}}),
    ("tpu-topology", POOL, {"placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x4"}}),
    (
        "tpu-topology",
        POOL,
        {**TPU_POOL, "placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x1"}, "nodeCount": 1},
    ),
    ("slice-is-whole", POOL, {**TPU_POOL, "nodeCount": 3}),
    ("slice-is-whole", POOL, {**TPU_POOL, "nodeCount": None, "autoscaling": {"totalMaxNodeCount": 4}}),
    ("compact-placement", POOL, {"placementPolicy": {"type": "COMPACT"}}),
    (
        "one-kind-of-capacity",
        POOL,
        {
            "nodeConfig": {
                **CONFIG,
                "spot": True,
                "reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION", "key": "k"},
            }
        },
    ),
    ("one-kind-of-capacity", POOL, {"nodeConfig": {**CONFIG, "spot": True, "flexStart": True}}),
    ("flex-start", POOL, {"nodeConfig": {**CONFIG, "flexStart": True}}),
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
]
