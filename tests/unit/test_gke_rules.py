"""Problems, accepted settings and defaults of GKE platforms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stack.config import parse
from tests.problems import problems_of
from tests.unit.stack_settings import A3_MACHINE, code_ids, error_lines, gke, gke_pool, tpu_pool

N2_MACHINE = {"machine_type": "n2-standard-4"}
ZONES = ["us-central1-a", "us-central1-b"]
OTHER_KEY = "projects/p/locations/us-east1/keyRings/r/cryptoKeys/k"
PREBUILT = f"a/b@sha256:{'0' * 64}"
V4_SLICE = ("v4-32", "us-central2-b")
"""Accelerator and zone of a pool."""
GKE_PROBLEMS: list[tuple[dict[str, Any], str, str]] = [
    ({"kind": "gke"}, "settings.missing", "project"),
    (
        gke_pool(**A3_MACHINE, capacity=["reservation:r", "spot"], min_nodes=1),
        "gke.pool.min_nodes_with_fallback",
        "pools.0.min_nodes",
    ),
    (
        gke_pool(**N2_MACHINE, accelerators_per_node=1),
        "gke.pool.count_without_accelerator",
        "pools.0.accelerators_per_node",
    ),
    (gke(kubernetes_version="1.34"), "gke.kubernetes_version.standard_support_ended", "kubernetes_version"),
    (gke(authorized_networks=["203.0.113.7/24"]), "settings.address_in_range", "authorized_networks.0"),
    (gke(registry={"host": "mars-docker.pkg.dev"}), "gke.registry.location_unknown", "registry.host"),
    (gke(bucket={"location": "europe-west99"}), "gke.bucket.location_unknown", "bucket.location"),
    (gke(bucket={"name": "my-google-bucket"}), "gke.bucket.name_reserved", "bucket.name"),
    (gke(bucket={"name": "goog-data"}), "gke.bucket.name_reserved", "bucket.name"),
    (gke(network={"pods": "10.0.0.0/14"}), "gke.network.overlap", "network.pods"),
    (gke(network={"services": "10.64.0.0/20"}), "gke.network.overlap", "network.services"),
    (gke(network={"nodes": "8.8.0.0/20"}), "gke.network.public", "network.nodes"),
    (gke(authorized_networks=["0.0.0.0/0"]), "cloud.authorized_networks.open_to_all", "authorized_networks.0"),
    (
        gke(system_pool={"machine_type": "g2-standard-4"}),
        "gke.system_pool.has_accelerators",
        "system_pool.machine_type",
    ),
    (gke(pools=[{"name": "system"}]), "gke.pool.name_taken", "pools.0.name"),
    (gke_pool(**N2_MACHINE, gpu_driver="latest"), "gke.pool.driver_without_gpu", "pools.0.gpu_driver"),
    (gke_pool(zones=["us-central1-a", "us-central1-a"]), "gke.pool.zones_duplicate", "pools.0.zones"),
    (gke_pool(capacity=["spot", "reservation:r"]), "gke.pool.spot_before_reservation", "pools.0.capacity"),
    (gke_pool(capacity=["spot", "spot"]), "gke.pool.capacity_duplicate", "pools.0.capacity"),
    (gke_pool(capacity=[]), "gke.pool.capacity_empty", "pools.0.capacity"),
    (gke(network={"nodes": "172.17.0.0/20"}), "gke.network.docker_bridge", "network.nodes"),
    (
        gke_pool(**A3_MACHINE, compact=True, capacity="reservation:r"),
        "gke.pool.compact_with_reservation",
        "pools.0.compact",
    ),
    (
        gke_pool(**A3_MACHINE, compact=True, capacity="flex-start"),
        "gke.pool.compact_with_flex_start",
        "pools.0.compact",
    ),
    (
        gke_pool(machine_type="a3-ultragpu-8g", capacity="spot", disk_type="pd-ssd", platform_zone="us-central1-b"),
        "gke.pool.disk_hyperdisk_only",
        "pools.0.disk_type",
    ),
    (
        gke_pool(machine_type="a3-ultragpu-8g", platform_zone="us-central1-b"),
        "gke.pool.capacity_not_on_demand",
        "pools.0.capacity",
    ),
    (
        gke_pool(machine_type="a3-highgpu-4g", capacity=["spot", "on-demand"]),
        "gke.pool.capacity_not_on_demand",
        "pools.0.capacity",
    ),
    (
        gke_pool(machine_type="n2-standard-8", disk_type="hyperdisk-balanced"),
        "gke.pool.disk_hyperdisk_unsupported",
        "pools.0.disk_type",
    ),
    (gke_pool(disk_type="hyperdisk-balanced"), "gke.pool.disk_hyperdisk_unsupported", "pools.0.disk_type"),
    (gke_pool(machine_type="g2-standard-8", disk_type="pd-standard"), "gke.pool.disk_ssd_only", "pools.0.disk_type"),
    (gke_pool(topology="2x2"), "gke.pool.topology_without_tpu", "pools.0.topology"),
    (gke_pool(slices=2), "gke.pool.slices_without_tpu", "pools.0.slices"),
    (gke(image={"prebuilt": PREBUILT, "git_branch": "dev"}), "image.prebuilt.with_build_key", "image.git_branch"),
    (
        gke(registry={"host": "gcr.io", "repository": "mine"}),
        "gke.registry.gcr_repository_fixed",
        "registry.repository",
    ),
    (
        gke(registry={"host": "gcr.io", "keep_images": 5}),
        "gke.registry.keep_images_of_others",
        "registry.keep_images",
    ),
    (gke_pool(**A3_MACHINE, capacity=["queued", "spot"]), "gke.pool.queued_with_others", "pools.0.capacity"),
    (gke_pool(**A3_MACHINE, capacity="spot", zones=ZONES), "gke.pool.several_network_sets", "pools.0.zones"),
    (gke(name="goog-dist"), "gke.bucket.name_reserved", "name"),
    (tpu_pool(*V4_SLICE, min_nodes=2), "gke.pool.min_nodes_splits_slice", "pools.0.min_nodes"),
    (tpu_pool("v6e-16", "us-east5-a", capacity="queued"), "gke.pool.queued_unsupported_by_tpu", "pools.0.capacity"),
    (tpu_pool("v6e-16", "us-east5-a", compact=True), "gke.pool.compact_unsupported_by_tpu", "pools.0.compact"),
    (gke(project="My_Project"), "settings.project_id", "project"),
    (gke(zone="us-central1"), "settings.gcp_zone", "zone"),
    (gke(name="a" * 70), "settings.gke_name", "name"),
    (gke(kubernetes_version="2.0"), "settings.gke_version", "kubernetes_version"),
    (gke(kubernetes_version="1.99"), "gke.kubernetes_version.not_yet_offered", "kubernetes_version"),
    (gke(kubernetes_version="1.20.4-gke.100"), "gke.kubernetes_version.no_longer_offered", "kubernetes_version"),
    (
        gke(kubernetes_version="1.36", release_channel="STABLE"),
        "gke.kubernetes_version.not_yet_offered",
        "kubernetes_version",
    ),
    (gke(zone="us-central1-z"), "gke.zone.unknown", "zone"),
    (gke_pool(**N2_MACHINE, zones="us-central1-q"), "gke.pool.zone_unknown", "pools.0.zones"),
    (gke(secrets_key=OTHER_KEY), "gke.secrets_key.other_region", "secrets_key"),
    (gke(registry={"host": "docker.io"}), "settings.registry_host", "registry.host"),
    (gke(image={"name": "a:1"}), "settings.image_name", "image.name"),
    (gke(image={"prebuilt": "a/b:1"}), "settings.image_digest", "image.prebuilt"),
    (gke(image={"python_version": 3.12}), "settings.literal_error", "image.python_version"),
    (gke(network={"nodes": "10.0.0.0"}), "settings.range_malformed", "network.nodes"),
    (gke(network={"nodes": "10.0.0.1/20"}), "settings.range_with_host_bits", "network.nodes"),
    (gke(project=123456789012), "settings.project_number", "project"),
    (gke_pool(capacity="spot,reservation:x"), "settings.capacities_in_one_text", "pools.0.capacity.0"),
    (gke(bucket={"name": "a.example.com"}), "settings.gcs_bucket_name", "bucket.name"),
    (gke(bucket={"soft_delete_days": 6}), "settings.soft_delete_days", "bucket.soft_delete_days"),
    (gke(regional="yes"), "settings.bool_type", "regional"),
    (gke_pool(disk_size_gb=10), "settings.greater_than_equal", "pools.0.disk_size_gb"),
    (gke_pool(capacity="cheap"), "settings.gke_capacity", "pools.0.capacity.0"),
    (gke(network={"control_plane": "172.16.0.0/24"}), "gke.network.prefix_fixed", "network.control_plane"),
    (gke_pool(nodes=20, platform_network={"nodes": "10.0.0.0/28"}), "gke.network.too_few_addresses", "network.nodes"),
    (gke(network={"pods": "10.64.0.0/24"}), "gke.network.too_few_addresses", "network.pods"),
    (gke(namespace="trainyard-operators"), "settings.namespace_not_deletable", "namespace"),
    (gke_pool(machine_type="ct5p-hightpu-4t"), "gke.pool.tpu_machine_without_accelerator", "pools.0.machine_type"),
    (gke(system_pool={"machine_type": "n1-standard-1"}), "gke.system_pool.too_small", "system_pool.machine_type"),
    (gke(system_pool={"machine_type": "n1-highcpu-4"}), "gke.system_pool.too_small", "system_pool.machine_type"),
    (gke(system_pool={"nodes": 5}), "gke.system_pool.max_below_nodes", "system_pool.max_nodes"),
    (
        gke(zone="us-central2-b", system_pool={"machine_type": "e2-standard-4"}, pools=[]),
        "gke.system_pool.no_e2",
        "system_pool.machine_type",
    ),
    (gke(maintenance={"days": ["SA"], "hours": 4}), "gke.maintenance.too_short", "maintenance.days"),
    (gke(pools=[{"name": "a"}, {"name": "a"}]), "gke.pool.name_taken", "pools.1.name"),
    (
        gke_pool(name="a" * 35, **A3_MACHINE, capacity=["reservation:r", "spot"]),
        "gke.pool.name_too_long",
        "pools.0.name",
    ),
    (gke_pool(machine_type="n1-standard-5"), "gke.pool.machine_unknown", "pools.0.machine_type"),
    (gke_pool(machine_type="g2-standard-8", zones="us-central1-f"), "gke.pool.zones_lack_accelerator", "pools.0.zones"),
    (gke_pool(zones=["us-east1-c"]), "gke.pool.zones_other_region", "pools.0.zones"),
    (gke_pool(nodes=3, zones=ZONES), "gke.pool.nodes_not_multiple_of_zones", "pools.0.nodes"),
    (gke(secrets_key="mine"), "settings.kms_key", "secrets_key"),
    (gke_pool(min_nodes=3), "gke.pool.min_nodes_above_nodes", "pools.0.min_nodes"),
    (gke_pool(capacity="flex-start"), "gke.pool.capacity_unsupported_by_machine", "pools.0.capacity"),
    (gke(network={"services": "10.32.0.0/30"}), "gke.network.prefix_out_of_range", "network.services"),
    (gke(image={"platforms": []}), "settings.image_platforms", "image.platforms"),
    (
        gke_pool(**A3_MACHINE, capacity="flex-start", min_nodes=1),
        "gke.pool.min_nodes_with_flex_start",
        "pools.0.min_nodes",
    ),
    (
        gke_pool(
            **A3_MACHINE, capacity="flex-start", platform_kubernetes_version="1.31", platform_release_channel="EXTENDED"
        ),
        "gke.pool.capacity_unsupported_by_version",
        "pools.0.capacity",
    ),
    (gke_pool(compact=True), "gke.pool.compact_unsupported_by_machine", "pools.0.compact"),
    (gke(image={"platforms": "linux/arm64"}), "image.platforms.no_amd64", "image.platforms"),
    (gke(system_pool={"machine_type": "e2-micro"}), "gke.system_pool.machine_unknown", "system_pool.machine_type"),
    (tpu_pool("v4-32", "us-central1-a"), "gke.pool.zones_lack_accelerator", "pools.0.zones"),
    (tpu_pool("v4", "us-central2-b", topology="4x4"), "gke.pool.topology_impossible", "pools.0.topology"),
    (tpu_pool(*V4_SLICE, nodes=2), "gke.pool.nodes_differ_from_slice", "pools.0.nodes"),
    (
        tpu_pool(*V4_SLICE, machine_type="ct5p-hightpu-4t"),
        "gke.pool.machine_differs_from_slice",
        "pools.0.machine_type",
    ),
    (tpu_pool(*V4_SLICE, capacity="flex-start"), "gke.pool.flex_start_unsupported_by_tpu", "pools.0.capacity"),
    (
        tpu_pool("v5litepod-16", "us-west1-c", capacity="flex-start"),
        "gke.pool.flex_start_unsupported_in_zone",
        "pools.0.capacity",
    ),
]
"""Platform, and the code and path of its problem. The path starts below `platform`."""


@pytest.mark.parametrize(("platform", "code", "path"), GKE_PROBLEMS, ids=code_ids(GKE_PROBLEMS))
def test_gke_invalid_setting_has_code_and_path(platform: dict[str, Any], code: str, path: str) -> None:
    assert problems_of({"platform": platform, "jobs": []}) == [(code, f"platform.{path}")]


@pytest.mark.parametrize(("capacity", "supports_tpus"), [("flex-start", True), ("queued", False)])
def test_gke_unsupported_capacity_error_lists_supported_families(capacity: str, supports_tpus: bool) -> None:
    (line,) = error_lines({"platform": gke_pool(capacity=capacity), "jobs": []})
    assert f"does not support {capacity}; only the families g2, " in line
    assert ("v6e" in line) == supports_tpus
    assert "v4" not in line


VALID_GKE: list[dict[str, Any]] = [
    gke(),
    gke_pool(**A3_MACHINE),
    gke_pool(machine_type="n2-standard-8"),
    gke_pool(machine_type="n1-standard-8"),
    gke_pool(accelerator="nvidia-tesla-v100", machine_type="n1-standard-8"),
    gke_pool(**A3_MACHINE, capacity=["reservation:projects/p/reservations/r", "flex-start", "spot"]),
    tpu_pool("v6e-16", "us-east5-a", capacity=["flex-start", "spot"], zones=["us-east5-a", "us-east5-b"]),
    gke_pool(machine_type="a3-ultragpu-8g", capacity="spot", platform_zone="us-central1-b"),
    tpu_pool("v4-32", "us-central1-a", check_zones=False),
    tpu_pool(*V4_SLICE, nodes=4, machine_type="ct4p-hightpu-4t"),
    tpu_pool(*V4_SLICE, nodes=8, slices=2),
    gke_pool(machine_type="g2-standard-8", platform_zone="europe-west4-c"),
    gke(system_pool={"machine_type": "n1-standard-2"}),
    gke(pools=[]),
    gke(bucket={"soft_delete_days": 0}),
    gke(registry={"host": "us-docker.pkg.dev", "keep_images": 5}),
    gke(registry={"repository": "mine"}),
    gke(kubernetes_version="1.40", check_availability=False),
    gke(zone="us-north1-a", pools=[], check_availability=False),
    gke(kubernetes_version="1.37", release_channel="RAPID"),
]


@pytest.mark.parametrize("platform", VALID_GKE, ids=str)
def test_gke_valid_settings_are_accepted(platform: dict[str, Any]) -> None:
    assert parse({"platform": platform, "jobs": []}).platform.kind == "gke"


def test_gke_problems_are_reported_together() -> None:
    platform = gke(
        network={"pods": "10.0.0.0/14"},
        pools=[{"name": "a", "accelerators_per_node": 3}, {"name": "b", "accelerator": "v4", "topology": "2x3x4"}],
    )
    assert problems_of({"platform": platform, "jobs": []}) == [
        ("gke.network.overlap", "platform.network.pods"),
        ("gke.pool.gpu_count", "platform.pools.0.accelerators_per_node"),
        ("gke.pool.topology_impossible", "platform.pools.1.topology"),
    ]


def test_gke_defaults_equal_those_of_the_tutorials_script() -> None:
    # `--help` of the GKE script in the Weights & Biases distributed-training tutorial shows these values.
    config = parse({"platform": {"kind": "gke", "project": "some-project"}, "jobs": []}).platform
    assert config.kind == "gke"
    (pool,) = config.pools
    assert config.name == "gke-dist"
    assert (pool.nodes, pool.machine_type) == (2, "n1-standard-4")
    assert (pool.disk_size_gb, pool.disk_type) == (100, "pd-ssd")
    assert (pool.accelerator, pool.accelerators_per_node) == ("nvidia-tesla-t4", 2)
    # The tutorial's registry, gcr.io, has one repository for all stacks of a project.
    assert (config.registry_host, config.repository) == ("us-central1-docker.pkg.dev", "gke-dist")
    assert (config.image.name, config.image.git_branch) == ("sh22-dist-gpu", "main")


@pytest.mark.parametrize(
    ("name", "is_kept", "has_problem"),
    [("gke-dist", False, False), ("gcr.io", False, True), ("gcr.io", True, False)],
)
def test_gke_repository_of_an_earlier_version_must_be_kept(name: str, is_kept: bool, has_problem: bool) -> None:
    cluster = {"id": "1", "type": "gcp:container/cluster:Cluster", "outputs": {"name": "gke-dist"}}
    repository = {"id": "2", "type": "gcp:artifactregistry/repository:Repository", "retainOnDelete": is_kept}
    repository["outputs"] = {"repositoryId": name}
    cloud = parse({"platform": gke(), "jobs": []}).cloud
    found = [each.code for each in cloud.problems_in_state({"resources": [cluster, repository]})]
    assert found == (["gke.registry.would_be_deleted"] if has_problem else [])
    assert cloud.problems_in_state({}) == []


def test_gke_up_problems_name_the_missing_plugin_of_the_kubeconfig(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = parse({"platform": gke(), "jobs": []}).cloud
    monkeypatch.setenv("PATH", str(tmp_path))
    (line,) = cloud.up_problems("/checkout", "dev")
    assert line.startswith("gke-gcloud-auth-plugin: is not installed")
    assert "`gcloud components install gke-gcloud-auth-plugin`" in line
    (tmp_path / "gke-gcloud-auth-plugin").touch(mode=0o755)
    assert cloud.up_problems("/checkout", "dev") == []
