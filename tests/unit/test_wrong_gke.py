"""Wrong settings of GKE are refused when they are read: key, value, what is allowed, what to do."""

from __future__ import annotations

from typing import Any

import pytest

from settings.problems import ConfigError
from stack.config import parse
from tests.problems import refused
from tests.unit.cloud_settings import A3, gke, pool, tpu
from tests.unit.refused import assert_refused_in_one_line

CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "no project": ({"kind": "gke"}, ("platform.project: is missing", "add `project:")),
    "project in capitals": (gke(project="My_Project"), ("platform.project", "id of a project")),
    "zone without letter": (gke(zone="us-central1"), ('platform.zone = "us-central1"', "us-central1-a")),
    "name of 70": (gke(name="a" * 70), ("platform.name", "1 to 40 lower-case letters")),
    "name in capitals": (gke(name="Dist"), ("platform.name", "lower-case", "gke-dist")),
    "unknown channel": (gke(release_channel="FAST"), ("release_channel", "RAPID, REGULAR, STABLE, EXTENDED")),
    "version of another product": (gke(kubernetes_version="2.0"), ("kubernetes_version", "1.34")),
    "version of the far future": (gke(kubernetes_version="1.99"), ("kubernetes_version", "not yet", "1.35 to 1.36")),
    "version that GKE has forgotten": (gke(kubernetes_version="1.20.4-gke.100"), ("kubernetes_version", "no longer")),
    "version past standard support": (
        gke(kubernetes_version="1.34"),
        ("kubernetes_version", "left standard support on 2026-10-01", "EXTENDED, which costs an additional fee"),
    ),
    "version too new for a channel": (
        gke(kubernetes_version="1.36", release_channel="STABLE"),
        ("kubernetes_version", "write 1.35, in quotes", "another release_channel than STABLE"),
    ),
    "zone that there is not": (gke(zone="us-central1-z"), ("platform.zone", "us-central1-a", "check_availability")),
    "region that there is not": (gke(zone="us-centrel1-a"), ("platform.zone", "write one of us-central1-a")),
    "zone of a pool that there is not": (
        pool(machine_type="n2-standard-4", zones="us-central1-q"),
        ("pools[0].zones", "us-central1-q is not a zone", "us-central1-a"),
    ),
    "namespace of Kubernetes": (gke(namespace="kube-system"), ("platform.namespace", "that the stack can create")),
    "misspelt key of GKE": (
        gke(machine_type="x"),
        ("platform.machine_type", "unknown key", "allowed here: kind, proj"),
    ),
    "misspelt key of a pool": (pool(machin_type="x"), ("platform.pools[0].machin_type", "write machine_type")),
    "bucket on Mars": (gke(bucket={"location": "mars"}), ("bucket.location", "us-central1, or US, EU, ASIA")),
    "bucket nowhere": (gke(bucket={"location": ""}), ('bucket.location = ""', "us-central1, or US, EU, ASIA")),
    "key of another region": (
        gke(secrets_key="projects/p/locations/us-east1/keyRings/r/cryptoKeys/k"),
        ("platform.secrets_key", "is in us-east1", "write one in us-central1"),
    ),
    "bucket in capitals": (gke(bucket={"name": "Bucket"}), ("platform.bucket.name", "3 to 63 lower-case")),
    "registry elsewhere": (gke(registry={"host": "docker.io"}), ("platform.registry.host", "gcr.io")),
    "image with a tag": (gke(image={"name": "a:1"}), ("platform.image.name", "without registry and tag")),
    "image not by digest": (gke(image={"prebuilt": "a/b:1"}), ("platform.image.prebuilt", "must have a digest")),
    "Python 3.8": (gke(image={"python_version": "3.8"}), ("image.python_version", "3.11, 3.12, 3.13")),
    "Python without quotes": (gke(image={"python_version": 3.12}), ("3.11, 3.12, 3.13, in quotes: '3.12'",)),
    "topology without quotes": (pool(topology=16), ("pools[0].topology = 16", "must be a string", "`topology: '16'`")),
    "range that is none": (gke(network={"nodes": "10.0.0.0"}), ("network.nodes", "IPv4 address range", "/20")),
    "range with host bits": (
        gke(network={"nodes": "10.0.0.1/20"}),
        ("nodes", "IPv4 address range", "the range, '10.0.0.0/20'"),
    ),
    "address for a range": (
        gke(authorized_networks=["203.0.113.7/24"]),
        ("networks[0]", "'203.0.113.0/24', or '203.0.113.7/32' for this address"),
    ),
    "project by its number": (
        gke(project=123456789012),
        ("platform.project = 123456789012", "the project's id", "gcloud projects describe 123456789012 "),
    ),
    "capacities in one text": (
        pool(capacity="spot,reservation:x"),
        ("capacity[0]", "list", "`capacity: [spot, reservation:x]`"),
    ),
    "bucket with dots": (gke(bucket={"name": "a.example.com"}), ("bucket.name", "without dots", "'team-checkpoints'")),
    "bucket with its scheme": (gke(bucket={"name": "gs://a"}), ("bucket.name", "without dots, gs://")),
    "soft delete for a day": (gke(bucket={"soft_delete_days": 1}), ("soft_delete_days", "integer from 7 to 90")),
    "yes in quotes": (gke(regional="yes"), ('platform.regional = "yes"', "must be true or false")),
    "small disk": (pool(disk_size_gb=10), ("pools[0].disk_size_gb = 10", "integer from 15")),
    "unknown disk": (pool(disk_type="ssd"), ("pools[0].disk_type", "pd-ssd, pd-balanced")),
    "unknown capacity": (
        pool(capacity="cheap"),
        ("pools[0].capacity", "must be one of on-demand, spot, flex-start, queued"),
    ),
    "run of a month": (pool(max_run_hours=720), ("max_run_hours", "integer from 1 to 168", "`max_run_hours: 168`")),
    "no pool name": (gke(pools=[{}]), ("platform.pools[0].name: is missing", "add `name: gpus`")),
    "control plane /24": (gke(network={"control_plane": "172.16.0.0/24"}), ("network.control_plane", "must be a /28")),
    "subnet too small": (
        gke(network={"nodes": "10.0.0.0/28"}, pools=[{"name": "a", "nodes": 20}]),
        ("network.nodes", "has 12 addresses, and up to 23 nodes need 23"),
    ),
    "pod range too small": (
        gke(network={"pods": "10.64.0.0/24"}),
        ("network.pods", "has 256 addresses, and up to 5 nodes need 896"),
    ),
    "namespace of the operators": (
        gke(namespace="trainyard-operators"),
        ("platform.namespace", "that the stack can create"),
    ),
    "host of a TPU without its TPU": (
        pool(machine_type="ct5p-hightpu-4t"),
        ('pools[0].machine_type = "ct5p-hightpu-4t"', "is a machine type of TPU v5p", "write `accelerator: v5p-...`"),
    ),
    "system pool of one CPU": (
        gke(system_pool={"machine_type": "n1-standard-1"}),
        ("system_pool.machine_type", "1 vCPUs and 3.75 GiB", "e2-standard-2"),
    ),
    "system pool of little memory": (
        gke(system_pool={"machine_type": "n1-highcpu-4"}),
        ("system_pool.machine_type", "4 vCPUs and 3.6 GiB", "such as e2-standard-2"),
    ),
    "system pool shrinks": (gke(system_pool={"nodes": 5}), ("system_pool.max_nodes = 3", "at least nodes, 5")),
    "E2 where there is none": (
        gke(zone="us-central2-b", system_pool={"machine_type": "e2-standard-4"}, pools=[]),
        ("system_pool.machine_type", "has no E2"),
    ),
    "too little maintenance": (gke(maintenance={"days": ["SA"], "hours": 4}), ("maintenance.days", "GKE requires 48")),
    "two pools of one name": (
        gke(pools=[{"name": "a"}, {"name": "a"}]),
        ("pools[1].name", "pools[0]", "must be unique"),
    ),
    "pool name too long with suffix": (
        gke(pools=[{"name": "a" * 35, "capacity": ["reservation:r", "spot"], **A3}]),
        ("pools[0].name", "at most 40"),
    ),
    "three GPUs": (pool(accelerators_per_node=3), ("accelerators_per_node = 3", "write one of 1, 2, 4")),
    "eight T4": (pool(accelerators_per_node=8), ("accelerators_per_node = 8", "write one of 1, 2, 4")),
    "V100 on a large machine": (
        pool(machine_type="n1-standard-32", accelerator="nvidia-tesla-v100", accelerators_per_node=1),
        ("pools[0].machine_type", "at most 12 vCPUs"),
    ),
    "T4 on N2": (pool(machine_type="n2-standard-4", accelerator="nvidia-tesla-t4"), ("machine_type", "N1 family")),
    "H100 on N1": (pool(accelerator="nvidia-h100-80gb"), ("pools[0].machine_type", "available with a3-highgpu-1g")),
    "four GPUs of an A3": (pool(**A3, accelerators_per_node=4), ("accelerators_per_node = 4", "exactly 8")),
    "unknown GPU": (
        pool(accelerator="nvidia-t4"),
        ("pools[0].accelerator", "is not an accelerator", "nvidia-tesla-t4"),
    ),
    "unknown machine": (pool(machine_type="n1-standard-5"), ("machine_type", "n1-standard-4")),
    "V100 in a zone without": (
        pool(accelerator="nvidia-tesla-v100", platform_zone="us-east4-a"),
        ("pools[0].zones", "us-east4-a has no nvidia-tesla-v100", "check_zones"),
    ),
    "L4 in a zone without": (
        pool(machine_type="g2-standard-8", platform_zone="me-central1-a"),
        ("pools[0].zones", "me-central1-a has no nvidia-l4; it is in me-central2-a, me-central2-c;", "check_zones"),
    ),
    "L4 of a pool in the fourth zone": (
        pool(machine_type="g2-standard-8", zones="us-central1-f"),
        ("pools[0].zones", "us-central1-f has no nvidia-l4; it is in us-central1-a, us-central1-b, us-central1-c;"),
    ),
    "zone of another region": (pool(zones=["us-east1-c"]), ("pools[0].zones", "not in us-central1")),
    "three nodes in two zones": (
        pool(nodes=3, zones=["us-central1-a", "us-central1-b"]),
        ("pools[0].nodes = 3", "multiple of 2"),
    ),
    "secrets without a key": (gke(secrets_key="mine"), ("platform.secrets_key", "cryptoKeys")),
    "more at least than at most": (pool(min_nodes=3), ("min_nodes = 3", "at most the number of nodes, 2")),
    "flex-start on N1": (pool(capacity="flex-start"), ("capacity", "which is for GPUs of g2", "write on-demand, spot")),
    "services of four addresses": (gke(network={"services": "10.32.0.0/30"}), ("network.services", "/16 to /27")),
    "an image for nothing": (gke(image={"platforms": []}), ("image.platforms", "one or more")),
    "flex-start with nodes that stay": (pool(**A3, capacity="flex-start", min_nodes=1), ("min_nodes", "scales from 0")),
    "flex-start on an old cluster": (
        pool(**A3, capacity="flex-start", platform_kubernetes_version="1.31", platform_release_channel="EXTENDED"),
        ("capacity", "1.32 or newer"),
    ),
    "compact N1": (pool(compact=True), ("pools[0].compact", "N1 does not support compact placement")),
    "an image that no node runs": (gke(image={"platforms": "linux/arm64"}), ("image.platforms", "add linux/amd64")),
    "machine type of the other cloud": (pool(machine_type="p5.48xlarge"), ("machine_type", "families: a2-highgpu")),
    "machine type of a size that there is not": (
        gke(system_pool={"machine_type": "e2-micro"}),
        ("system_pool.machine_type", "write one of e2-standard-2, e2-standard-4"),
    ),
    "TPU pool in capitals": (pool(accelerator="V5P-32"), ("pools[0].accelerator", "write v5p-32;")),
    "TPU in a zone without": (tpu("v4-32", "us-central1-a"), ("pools[0].zones", "has no v4; it is in us-central2-b")),
    "topology of other chips": (tpu("v4-32", "us-central2-b", topology="2x2x2"), ("topology", "8 chips", "16")),
    "topology of two axes": (tpu("v4", "us-central2-b", topology="4x4"), ("topology", "v4 has no slice 4x4")),
    "v5e of twelve": (tpu("v5litepod-12", "us-west4-a"), ("accelerator", "12 chips", "4x4")),
    "generation alone": (tpu("v6e", "us-east5-a"), ("accelerator", "add a topology")),
    "nodes that disagree": (tpu("v4-32", "us-central2-b", nodes=2), ("nodes = 2", "has 4 hosts; write 4")),
    "machine that disagrees": (
        tpu("v4-32", "us-central2-b", machine_type="ct5p-hightpu-4t"),
        ("machine_type", "ct4p-hightpu-4t"),
    ),
    "flex-start v4": (
        tpu("v4-32", "us-central2-b", capacity="flex-start"),
        ("capacity", "v4 does not support flex-start"),
    ),
    "flex-start v5e elsewhere": (tpu("v5litepod-16", "us-west1-c", capacity="flex-start"), ("capacity", "us-west4-a")),
}
CODES: dict[str, tuple[dict[str, Any], tuple[str, str]]] = {
    "registry on Mars": (
        gke(registry={"host": "mars-docker.pkg.dev"}),
        ("gke.registry.location_unknown", "platform.registry.host"),
    ),
    "bucket in a region that there is not": (
        gke(bucket={"location": "europe-west99"}),
        ("gke.bucket.location_unknown", "platform.bucket.location"),
    ),
    "bucket like Google": (
        gke(bucket={"name": "my-google-bucket"}),
        ("gke.bucket.name_reserved", "platform.bucket.name"),
    ),
    "bucket that begins with goog": (
        gke(bucket={"name": "goog-data"}),
        ("gke.bucket.name_reserved", "platform.bucket.name"),
    ),
    "pods overlap nodes": (gke(network={"pods": "10.0.0.0/14"}), ("gke.network.overlap", "platform.network.pods")),
    "services overlap pods": (
        gke(network={"services": "10.64.0.0/20"}),
        ("gke.network.overlap", "platform.network.services"),
    ),
    "public range": (gke(network={"nodes": "8.8.0.0/20"}), ("gke.network.public", "platform.network.nodes")),
    "open to all": (
        gke(authorized_networks=["0.0.0.0/0"]),
        ("cloud.authorized_networks.open_to_all", "platform.authorized_networks.0"),
    ),
    "system pool with GPUs": (
        gke(system_pool={"machine_type": "g2-standard-4"}),
        ("gke.system_pool.has_accelerators", "platform.system_pool.machine_type"),
    ),
    "pool called system": (gke(pools=[{"name": "system"}]), ("gke.pool.name_taken", "platform.pools.0.name")),
    "driver without GPU": (
        pool(machine_type="n2-standard-4", gpu_driver="latest"),
        ("gke.pool.driver_without_gpu", "platform.pools.0.gpu_driver"),
    ),
    "zone twice": (
        pool(zones=["us-central1-a", "us-central1-a"]),
        ("gke.pool.zones_duplicate", "platform.pools.0.zones"),
    ),
    "spot before reservation": (
        pool(capacity=["spot", "reservation:r"]),
        ("gke.pool.spot_before_reservation", "platform.pools.0.capacity"),
    ),
    "one capacity twice": (
        pool(capacity=["spot", "spot"]),
        ("gke.pool.capacity_duplicate", "platform.pools.0.capacity"),
    ),
    "no capacity": (pool(capacity=[]), ("gke.pool.capacity_empty", "platform.pools.0.capacity")),
    "flex-start on CPU": (
        pool(machine_type="n2-standard-4", capacity="flex-start"),
        ("gke.pool.capacity_of_machine", "platform.pools.0.capacity"),
    ),
    "nodes on the bridge": (
        gke(network={"nodes": "172.17.0.0/20"}),
        ("gke.network.docker_bridge", "platform.network.nodes"),
    ),
    "compact reservation": (
        pool(**A3, compact=True, capacity="reservation:r"),
        ("gke.pool.compact_reservation", "platform.pools.0.compact"),
    ),
    "compact flex-start": (
        pool(**A3, compact=True, capacity="flex-start"),
        ("gke.pool.compact_flex_start", "platform.pools.0.compact"),
    ),
    "SSD on H200": (
        pool(machine_type="a3-ultragpu-8g", disk_type="pd-ssd", platform_zone="us-central1-b"),
        ("gke.pool.disk_hyperdisk_only", "platform.pools.0.disk_type"),
    ),
    "Hyperdisk on N1": (
        pool(disk_type="hyperdisk-balanced"),
        ("gke.pool.disk_no_hyperdisk", "platform.pools.0.disk_type"),
    ),
    "hard disk under L4": (
        pool(machine_type="g2-standard-8", disk_type="pd-standard"),
        ("gke.pool.disk_ssd_only", "platform.pools.0.disk_type"),
    ),
    "hard disk under C3": (
        pool(machine_type="c3-standard-8", disk_type="pd-standard"),
        ("gke.pool.disk_ssd_only", "platform.pools.0.disk_type"),
    ),
    "topology for a GPU": (pool(topology="2x2"), ("gke.pool.topology_without_tpu", "platform.pools.0.topology")),
    "slices of a GPU": (pool(slices=2), ("gke.pool.slices_without_tpu", "platform.pools.0.slices")),
    "a build beside a prebuilt image": (
        gke(image={"prebuilt": f"a/b@sha256:{'0' * 64}", "git_branch": "dev"}),
        ("image.prebuilt.build_key", "platform.image.git_branch"),
    ),
    "repository of gcr.io": (
        gke(registry={"repository": "mine"}),
        ("gke.registry.repository_of_gcr", "platform.registry.repository"),
    ),
    "queued in turn with spot": (
        pool(**A3, capacity=["queued", "spot"]),
        ("gke.pool.queued_with_others", "platform.pools.0.capacity"),
    ),
    "A3 in two zones": (
        pool(**A3, capacity="spot", zones=["us-central1-a", "us-central1-b"]),
        ("gke.pool.fabrics_differ", "platform.pools.0.zones"),
    ),
    "bucket named after Google by default": (gke(name="goog-dist"), ("gke.bucket.name_reserved", "platform.name")),
    "half a slice stays": (
        tpu("v4-32", "us-central2-b", min_nodes=2),
        ("gke.pool.part_of_slice", "platform.pools.0.min_nodes"),
    ),
    "queued TPU": (
        tpu("v6e-16", "us-east5-a", capacity="queued"),
        ("gke.pool.queued_tpu", "platform.pools.0.capacity"),
    ),
    "compact TPU": (tpu("v6e-16", "us-east5-a", compact=True), ("gke.pool.compact_tpu", "platform.pools.0.compact")),
}
"""Settings with the code and path of what is wrong with them."""


@pytest.mark.parametrize("name", CASES)
def test_refused_in_one_line(name: str) -> None:
    platform, parts = CASES[name]
    assert_refused_in_one_line(({"platform": platform, "jobs": []}, ("trainyard:platform.", *parts)))


@pytest.mark.parametrize("name", CODES)
def test_settings_with_one_problem_are_refused_with_its_code(name: str) -> None:
    values, problem = CODES[name]
    assert refused({"platform": values, "jobs": []}) == [problem]


RIGHT: dict[str, dict[str, Any]] = {
    "the walk-through": gke(),
    "GPUs that the machine carries": pool(**A3),
    "jobs on CPU": pool(machine_type="n2-standard-8"),
    "N1 for jobs on CPU": pool(machine_type="n1-standard-8"),
    "V100": pool(accelerator="nvidia-tesla-v100", machine_type="n1-standard-8"),
    "a ladder": pool(**A3, capacity=["reservation:projects/p/reservations/r", "flex-start", "spot"]),
    "a ladder across zones": pool(
        accelerator="v6e-16",
        capacity=["flex-start", "spot"],
        zones=["us-east5-a", "us-east5-b"],
        platform_zone="us-east5-a",
    ),
    "H200 with its own disk": pool(machine_type="a3-ultragpu-8g", platform_zone="us-central1-b"),
    "a zone that we do not know of": tpu("v4-32", "us-central1-a", check_zones=False),
    "nodes that agree": tpu("v4-32", "us-central2-b", nodes=4, machine_type="ct4p-hightpu-4t"),
    "two slices": tpu("v4-32", "us-central2-b", nodes=8, slices=2),
    "L4": pool(machine_type="g2-standard-8", platform_zone="europe-west4-c"),
    "a system pool of the least that does": gke(system_pool={"machine_type": "n1-standard-2"}),
    "no pools": gke(pools=[]),
    "a version that we do not know of": gke(kubernetes_version="1.40", check_availability=False),
    "a region that we do not know of": gke(zone="us-north1-a", pools=[], check_availability=False),
    "a new version in the fast channel": gke(kubernetes_version="1.37", release_channel="RAPID"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_accepted(name: str) -> None:
    assert parse({"platform": RIGHT[name], "jobs": []}).platform.kind == "gke"


def test_every_problem_at_once() -> None:
    platform = gke(
        network={"pods": "10.0.0.0/14"},
        pools=[{"name": "a", "accelerators_per_node": 3}, {"name": "b", "accelerator": "v4", "topology": "2x3x4"}],
    )
    with pytest.raises(ConfigError) as caught:
        parse({"platform": platform, "jobs": []})
    assert [line.partition(" = ")[0] for line in str(caught.value).splitlines()] == [
        "trainyard:platform.network.pods",
        "trainyard:platform.pools[0].accelerators_per_node",
        "trainyard:platform.pools[1].topology",
    ]


def test_the_walk_throughs_defaults() -> None:
    """The values of the Weights & Biases walk-through of distributed training on GKE (its script's `--help`)."""
    config = parse({"platform": {"kind": "gke", "project": "some-project"}, "jobs": []}).platform
    assert config.kind == "gke"
    (found,) = config.pools
    assert config.name == "gke-dist"
    assert (found.nodes, found.machine_type) == (2, "n1-standard-4")
    assert (found.disk_size_gb, found.disk_type) == (100, "pd-ssd")
    assert (found.accelerator, found.accelerators_per_node) == ("nvidia-tesla-t4", 2)
    assert (config.registry.host, config.image.name, config.image.git_branch) == ("gcr.io", "sh22-dist-gpu", "main")
