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
    "version past standard support": (
        gke(kubernetes_version="1.34"),
        ("kubernetes_version", "left standard support on 2026-10-01", "EXTENDED, which costs an additional fee"),
    ),
    "address for a range": (
        gke(authorized_networks=["203.0.113.7/24"]),
        ("networks[0]", "'203.0.113.0/24', or '203.0.113.7/32' for this address"),
    ),
    "L4 in a zone without": (
        pool(machine_type="g2-standard-8", platform_zone="me-central1-a"),
        (
            "pools[0].zones",
            "me-central1-a does not have nvidia-l4; write one of me-central2-a, me-central2-c;",
            "check_zones",
        ),
    ),
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
        ("cloud.authorized_networks.open_to_internet", "platform.authorized_networks.0"),
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
    "project in capitals": (gke(project="My_Project"), ("settings.project_id", "platform.project")),
    "zone without letter": (gke(zone="us-central1"), ("settings.gcp_zone", "platform.zone")),
    "name of 70": (gke(name="a" * 70), ("settings.gke_name", "platform.name")),
    "name in capitals": (gke(name="Dist"), ("settings.gke_name", "platform.name")),
    "unknown channel": (gke(release_channel="FAST"), ("settings.literal_error", "platform.release_channel")),
    "version of another product": (
        gke(kubernetes_version="2.0"),
        ("settings.gke_version", "platform.kubernetes_version"),
    ),
    "version of the far future": (
        gke(kubernetes_version="1.99"),
        ("gke.kubernetes_version.not_yet_offered", "platform.kubernetes_version"),
    ),
    "version that GKE has forgotten": (
        gke(kubernetes_version="1.20.4-gke.100"),
        ("gke.kubernetes_version.no_longer_offered", "platform.kubernetes_version"),
    ),
    "version too new for a channel": (
        gke(kubernetes_version="1.36", release_channel="STABLE"),
        ("gke.kubernetes_version.not_yet_offered", "platform.kubernetes_version"),
    ),
    "zone that there is not": (gke(zone="us-central1-z"), ("gke.zone.unknown", "platform.zone")),
    "region that there is not": (gke(zone="us-centrel1-a"), ("gke.zone.unknown", "platform.zone")),
    "zone of a pool that there is not": (
        pool(machine_type="n2-standard-4", zones="us-central1-q"),
        ("gke.pool.zone_unknown", "platform.pools.0.zones"),
    ),
    "namespace of Kubernetes": (
        gke(namespace="kube-system"),
        ("settings.namespace_not_deletable", "platform.namespace"),
    ),
    "misspelt key of GKE": (gke(machine_type="x"), ("settings.unknown_key", "platform.machine_type")),
    "misspelt key of a pool": (pool(machin_type="x"), ("settings.unknown_key", "platform.pools.0.machin_type")),
    "bucket on Mars": (gke(bucket={"location": "mars"}), ("gke.bucket.location_unknown", "platform.bucket.location")),
    "bucket nowhere": (gke(bucket={"location": ""}), ("gke.bucket.location_unknown", "platform.bucket.location")),
    "key of another region": (
        gke(secrets_key="projects/p/locations/us-east1/keyRings/r/cryptoKeys/k"),
        ("gke.secrets_key.other_region", "platform.secrets_key"),
    ),
    "bucket in capitals": (gke(bucket={"name": "Bucket"}), ("settings.gcs_bucket_name", "platform.bucket.name")),
    "registry elsewhere": (gke(registry={"host": "docker.io"}), ("settings.registry_host", "platform.registry.host")),
    "image with a tag": (gke(image={"name": "a:1"}), ("settings.image_name", "platform.image.name")),
    "image not by digest": (gke(image={"prebuilt": "a/b:1"}), ("settings.image_digest", "platform.image.prebuilt")),
    "Python 3.8": (gke(image={"python_version": "3.8"}), ("settings.literal_error", "platform.image.python_version")),
    "Python without quotes": (
        gke(image={"python_version": 3.12}),
        ("settings.literal_error", "platform.image.python_version"),
    ),
    "topology without quotes": (pool(topology=16), ("settings.string_type", "platform.pools.0.topology")),
    "range that is none": (gke(network={"nodes": "10.0.0.0"}), ("settings.range_malformed", "platform.network.nodes")),
    "range with host bits": (
        gke(network={"nodes": "10.0.0.1/20"}),
        ("settings.range_with_host_bits", "platform.network.nodes"),
    ),
    "project by its number": (gke(project=123456789012), ("settings.project_number", "platform.project")),
    "capacities in one text": (
        pool(capacity="spot,reservation:x"),
        ("settings.capacities_in_one_text", "platform.pools.0.capacity.0"),
    ),
    "bucket with dots": (gke(bucket={"name": "a.example.com"}), ("settings.gcs_bucket_name", "platform.bucket.name")),
    "bucket with its scheme": (gke(bucket={"name": "gs://a"}), ("settings.gcs_bucket_name", "platform.bucket.name")),
    "soft delete for a day": (
        gke(bucket={"soft_delete_days": 1}),
        ("settings.greater_than_equal", "platform.bucket.soft_delete_days"),
    ),
    "yes in quotes": (gke(regional="yes"), ("settings.bool_type", "platform.regional")),
    "small disk": (pool(disk_size_gb=10), ("settings.greater_than_equal", "platform.pools.0.disk_size_gb")),
    "unknown disk": (pool(disk_type="ssd"), ("settings.literal_error", "platform.pools.0.disk_type")),
    "unknown capacity": (pool(capacity="cheap"), ("settings.gke_capacity", "platform.pools.0.capacity.0")),
    "run of a month": (pool(max_run_hours=720), ("settings.less_than_equal", "platform.pools.0.max_run_hours")),
    "no pool name": (gke(pools=[{}]), ("settings.missing", "platform.pools.0.name")),
    "control plane /24": (
        gke(network={"control_plane": "172.16.0.0/24"}),
        ("gke.network.fixed_size", "platform.network.control_plane"),
    ),
    "subnet too small": (
        gke(network={"nodes": "10.0.0.0/28"}, pools=[{"name": "a", "nodes": 20}]),
        ("gke.network.too_few_addresses", "platform.network.nodes"),
    ),
    "pod range too small": (
        gke(network={"pods": "10.64.0.0/24"}),
        ("gke.network.too_few_addresses", "platform.network.pods"),
    ),
    "namespace of the operators": (
        gke(namespace="trainyard-operators"),
        ("settings.namespace_not_deletable", "platform.namespace"),
    ),
    "host of a TPU without its TPU": (
        pool(machine_type="ct5p-hightpu-4t"),
        ("gke.pool.machine_of_tpu", "platform.pools.0.machine_type"),
    ),
    "system pool of one CPU": (
        gke(system_pool={"machine_type": "n1-standard-1"}),
        ("gke.system_pool.too_small", "platform.system_pool.machine_type"),
    ),
    "system pool of little memory": (
        gke(system_pool={"machine_type": "n1-highcpu-4"}),
        ("gke.system_pool.too_small", "platform.system_pool.machine_type"),
    ),
    "system pool shrinks": (
        gke(system_pool={"nodes": 5}),
        ("gke.system_pool.max_below_nodes", "platform.system_pool.max_nodes"),
    ),
    "E2 where there is none": (
        gke(zone="us-central2-b", system_pool={"machine_type": "e2-standard-4"}, pools=[]),
        ("gke.system_pool.no_e2", "platform.system_pool.machine_type"),
    ),
    "too little maintenance": (
        gke(maintenance={"days": ["SA"], "hours": 4}),
        ("gke.maintenance.too_short", "platform.maintenance.days"),
    ),
    "two pools of one name": (
        gke(pools=[{"name": "a"}, {"name": "a"}]),
        ("gke.pool.name_taken", "platform.pools.1.name"),
    ),
    "pool name too long with suffix": (
        gke(pools=[{"name": "a" * 35, "capacity": ["reservation:r", "spot"], **A3}]),
        ("gke.pool.name_too_long", "platform.pools.0.name"),
    ),
    "three GPUs": (pool(accelerators_per_node=3), ("gke.pool.gpu_count", "platform.pools.0.accelerators_per_node")),
    "eight T4": (pool(accelerators_per_node=8), ("gke.pool.gpu_count", "platform.pools.0.accelerators_per_node")),
    "V100 on a large machine": (
        pool(machine_type="n1-standard-32", accelerator="nvidia-tesla-v100", accelerators_per_node=1),
        ("gke.pool.machine_too_large", "platform.pools.0.machine_type"),
    ),
    "T4 on N2": (
        pool(machine_type="n2-standard-4", accelerator="nvidia-tesla-t4"),
        ("gke.pool.machine_without_gpus", "platform.pools.0.machine_type"),
    ),
    "H100 on N1": (
        pool(accelerator="nvidia-h100-80gb"),
        ("gke.pool.gpu_of_other_machines", "platform.pools.0.machine_type"),
    ),
    "four GPUs of an A3": (
        pool(**A3, accelerators_per_node=4),
        ("gke.pool.gpu_count_of_machine", "platform.pools.0.accelerators_per_node"),
    ),
    "unknown GPU": (pool(accelerator="nvidia-t4"), ("gke.pool.accelerator_unknown", "platform.pools.0.accelerator")),
    "unknown machine": (
        pool(machine_type="n1-standard-5"),
        ("gke.pool.machine_unknown", "platform.pools.0.machine_type"),
    ),
    "V100 in a zone without": (
        pool(accelerator="nvidia-tesla-v100", platform_zone="us-east4-a"),
        ("gke.pool.zones_lack_accelerator", "platform.pools.0.zones"),
    ),
    "L4 of a pool in the fourth zone": (
        pool(machine_type="g2-standard-8", zones="us-central1-f"),
        ("gke.pool.zones_lack_accelerator", "platform.pools.0.zones"),
    ),
    "zone of another region": (pool(zones=["us-east1-c"]), ("gke.pool.zones_other_region", "platform.pools.0.zones")),
    "three nodes in two zones": (
        pool(nodes=3, zones=["us-central1-a", "us-central1-b"]),
        ("gke.pool.nodes_of_zones", "platform.pools.0.nodes"),
    ),
    "secrets without a key": (gke(secrets_key="mine"), ("settings.kms_key", "platform.secrets_key")),
    "more at least than at most": (pool(min_nodes=3), ("gke.pool.min_above_nodes", "platform.pools.0.min_nodes")),
    "flex-start on N1": (pool(capacity="flex-start"), ("gke.pool.capacity_of_machine", "platform.pools.0.capacity")),
    "services of four addresses": (
        gke(network={"services": "10.32.0.0/30"}),
        ("gke.network.size", "platform.network.services"),
    ),
    "an image for nothing": (gke(image={"platforms": []}), ("settings.image_platforms", "platform.image.platforms")),
    "flex-start with nodes that stay": (
        pool(**A3, capacity="flex-start", min_nodes=1),
        ("gke.pool.min_with_flex_start", "platform.pools.0.min_nodes"),
    ),
    "flex-start on an old cluster": (
        pool(**A3, capacity="flex-start", platform_kubernetes_version="1.31", platform_release_channel="EXTENDED"),
        ("gke.pool.capacity_of_version", "platform.pools.0.capacity"),
    ),
    "compact N1": (pool(compact=True), ("gke.pool.compact_machine", "platform.pools.0.compact")),
    "an image that no node runs": (
        gke(image={"platforms": "linux/arm64"}),
        ("image.platforms.no_amd64", "platform.image.platforms"),
    ),
    "machine type of the other cloud": (
        pool(machine_type="p5.48xlarge"),
        ("gke.pool.machine_unknown", "platform.pools.0.machine_type"),
    ),
    "machine type of a size that there is not": (
        gke(system_pool={"machine_type": "e2-micro"}),
        ("gke.system_pool.machine_unknown", "platform.system_pool.machine_type"),
    ),
    "TPU pool in capitals": (
        pool(accelerator="V5P-32"),
        ("gke.pool.accelerator_unknown", "platform.pools.0.accelerator"),
    ),
    "TPU in a zone without": (
        tpu("v4-32", "us-central1-a"),
        ("gke.pool.zones_lack_accelerator", "platform.pools.0.zones"),
    ),
    "topology of other chips": (
        tpu("v4-32", "us-central2-b", topology="2x2x2"),
        ("gke.pool.topology_of_other_chips", "platform.pools.0.topology"),
    ),
    "topology of two axes": (
        tpu("v4", "us-central2-b", topology="4x4"),
        ("gke.pool.topology_impossible", "platform.pools.0.topology"),
    ),
    "v5e of twelve": (
        tpu("v5litepod-12", "us-west4-a"),
        ("gke.pool.tpu_slice_impossible", "platform.pools.0.accelerator"),
    ),
    "generation alone": (tpu("v6e", "us-east5-a"), ("gke.pool.topology_missing", "platform.pools.0.accelerator")),
    "nodes that disagree": (
        tpu("v4-32", "us-central2-b", nodes=2),
        ("gke.pool.nodes_of_slice", "platform.pools.0.nodes"),
    ),
    "machine that disagrees": (
        tpu("v4-32", "us-central2-b", machine_type="ct5p-hightpu-4t"),
        ("gke.pool.machine_of_slice", "platform.pools.0.machine_type"),
    ),
    "flex-start v4": (
        tpu("v4-32", "us-central2-b", capacity="flex-start"),
        ("gke.pool.flex_start_tpu", "platform.pools.0.capacity"),
    ),
    "flex-start v5e elsewhere": (
        tpu("v5litepod-16", "us-west1-c", capacity="flex-start"),
        ("gke.pool.flex_start_zone", "platform.pools.0.capacity"),
    ),
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
