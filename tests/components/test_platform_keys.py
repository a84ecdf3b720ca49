"""Keys of the cloud platforms: another value of a key changes the plan, unless only validation uses the key."""

from __future__ import annotations

import json
from typing import Any, get_args

import pytest
from pydantic import BaseModel

from infra.aws.config import EksConfig
from infra.gcp.config import GkeConfig
from tests.components.cloud_program import graph

RESERVATION = "reservation:cr-0123456789abcdef0"
DISK = "projects/p/global/images/i"
KEY = "projects/p/locations/us-central1/keyRings/r/cryptoKeys/k"
IMAGE = f"example.com/trainer@sha256:{'1' * 64}"
GPUS: dict[str, Any] = {"name": "gpus"}
A3 = {"name": "gpus", "machine_type": "a3-highgpu-8g"}
A3_SPOT = {**A3, "capacity": "spot"}
V5E = {"name": "gpus", "accelerator": "v5e", "topology": "2x2", "check_zones": False}

# Key -> two valid platform settings with different values of the key.
KEYS_OF_BOTH_CLOUDS: dict[str, list[dict[str, Any]]] = {
    "name": [{}, {"name": "other"}],
    "namespace": [{}, {"namespace": "other"}],
    "authorized_networks": [{}, {"authorized_networks": ["198.51.100.0/24"]}],
    "deletion_protection": [{}, {"deletion_protection": True}],
    "pools.name": [{}, {"pools": [{"name": "other"}]}],
    "bucket.name": [{}, {"bucket": {"name": "other"}}],
    "bucket.keep": [{}, {"bucket": {"keep": False}}],
    "bucket.profile_days": [{}, {"bucket": {"profile_days": 5}}],
    "bucket.checkpoint_days": [{}, {"bucket": {"checkpoint_days": 5}}],
    "registry.keep_images": [{}, {"registry": {"keep_images": 5}}],
    "image.name": [{}, {"image": {"name": "other"}}],
    "image.git_branch": [{}, {"image": {"git_branch": "team/other"}}],
    "image.python_version": [{}, {"image": {"python_version": "3.12"}}],
    "image.prebuilt": [{}, {"image": {"prebuilt": IMAGE}}],
}
GKE_KEYS: dict[str, list[dict[str, Any]]] = {
    **KEYS_OF_BOTH_CLOUDS,
    "project": [{}, {"project": "other-project"}],
    "zone": [{}, {"zone": "us-central1-b"}],
    "regional": [{}, {"regional": True}],
    "release_channel": [{}, {"release_channel": "RAPID"}],
    "kubernetes_version": [{}, {"kubernetes_version": "1.35"}],
    "network.nodes": [{}, {"network": {"nodes": "10.1.0.0/20"}}],
    "network.pods": [{}, {"network": {"pods": "10.68.0.0/14"}}],
    "network.services": [{}, {"network": {"services": "10.33.0.0/20"}}],
    "network.control_plane": [{}, {"network": {"control_plane": "172.16.1.0/28"}}],
    "network.accelerators": [{"pools": [A3]}, {"pools": [A3], "network": {"accelerators": "10.128.0.0/16"}}],
    "secrets_key": [{}, {"secrets_key": KEY}],
    "system_pool.machine_type": [{}, {"system_pool": {"machine_type": "e2-standard-8"}}],
    "system_pool.nodes": [{}, {"system_pool": {"nodes": 2}}],
    "system_pool.max_nodes": [{}, {"system_pool": {"max_nodes": 4}}],
    "pools.machine_type": [{"pools": [A3_SPOT]}, {"pools": [{**A3_SPOT, "machine_type": "a3-highgpu-1g"}]}],
    "pools.accelerator": [{}, {"pools": [{**GPUS, "accelerator": "nvidia-tesla-v100"}]}],
    "pools.accelerators_per_node": [{}, {"pools": [{**GPUS, "accelerators_per_node": 1}]}],
    "pools.topology": [{"pools": [V5E]}, {"pools": [{**V5E, "topology": "4x4"}]}],
    "pools.slices": [{"pools": [V5E]}, {"pools": [{**V5E, "slices": 2}]}],
    "pools.nodes": [{}, {"pools": [{**GPUS, "nodes": 3}]}],
    "pools.min_nodes": [{}, {"pools": [{**GPUS, "min_nodes": 1}]}],
    "pools.capacity": [{}, {"pools": [{**GPUS, "capacity": "spot"}]}],
    "pools.zones": [{}, {"pools": [{**GPUS, "zones": ["us-central1-b"]}]}],
    "pools.disk_size_gb": [{}, {"pools": [{**GPUS, "disk_size_gb": 200}]}],
    "pools.disk_type": [{}, {"pools": [{**GPUS, "disk_type": "pd-balanced"}]}],
    "pools.gpu_driver": [{}, {"pools": [{**GPUS, "gpu_driver": "default"}]}],
    "pools.compact": [{"pools": [A3]}, {"pools": [{**A3, "compact": False}]}],
    "pools.max_run_hours": [{}, {"pools": [{**GPUS, "max_run_hours": 5}]}],
    "pools.preloaded_image_disk": [{}, {"pools": [{**GPUS, "preloaded_image_disk": DISK}]}],
    "bucket.location": [{}, {"bucket": {"location": "us"}}],
    "bucket.soft_delete_days": [{}, {"bucket": {"soft_delete_days": 8}}],
    "registry.host": [{}, {"registry": {"host": "us-docker.pkg.dev"}}],
    "registry.repository": [{}, {"registry": {"repository": "other"}}],
    "image.platforms": [{}, {"image": {"platforms": "linux/amd64"}}],
    "image_streaming": [{}, {"image_streaming": False}],
    "gcs_fuse": [{}, {"gcs_fuse": False}],
    "managed_prometheus": [{}, {"managed_prometheus": False}],
    "maintenance.days": [{}, {"maintenance": {"days": ["MO", "TU"]}}],
    "maintenance.start_hour": [{}, {"maintenance": {"start_hour": 3}}],
    "maintenance.hours": [{}, {"maintenance": {"hours": 9}}],
}

G5 = {"name": "gpus", "machine_type": "g5.8xlarge"}
ZONED = {**G5, "zones": ["us-west-2a"], "efa": True}

EKS_KEYS: dict[str, list[dict[str, Any]]] = {
    **KEYS_OF_BOTH_CLOUDS,
    "account": [{}, {"account": "123456789012"}],
    "region": [{}, {"region": "us-east-1"}],
    "zones": [{}, {"zones": ["us-west-2a", "us-west-2d"]}],
    "kubernetes_version": [{}, {"kubernetes_version": "1.35", "check_availability": False}],
    "network.vpc": [{}, {"network": {"vpc": "10.1.0.0/16"}}],
    "network.services": [{}, {"network": {"services": "172.21.0.0/16"}}],
    "network.nat_per_zone": [{}, {"network": {"nat_per_zone": True}}],
    "admins": [{}, {"admins": ["arn:aws:iam::123456789012:role/team"]}],
    "system_pool.machine_type": [{}, {"system_pool": {"machine_type": "m7i.xlarge"}}],
    "system_pool.nodes": [{}, {"system_pool": {"nodes": 3}}],
    "pools.machine_type": [{}, {"pools": [G5]}],
    "pools.nodes": [{}, {"pools": [{"name": "gpus", "nodes": 3}]}],
    "pools.capacity": [{}, {"pools": [{"name": "gpus", "capacity": "spot"}]}],
    "pools.zones": [{}, {"pools": [{"name": "gpus", "zones": ["us-west-2b"]}]}],
    "pools.efa": [{"pools": [ZONED]}, {"pools": [{**ZONED, "efa": False}]}],
    "pools.placement_group": [{"pools": [ZONED]}, {"pools": [{**ZONED, "placement_group": False}]}],
    "pools.disk_size_gb": [{}, {"pools": [{"name": "gpus", "disk_size_gb": 200}]}],
    "pools.disk_type": [{}, {"pools": [{"name": "gpus", "disk_type": "io2"}]}],
    "bucket.prefix": [{}, {"bucket": {"prefix": "other"}}],
    "bucket.restore_days": [{}, {"bucket": {"restore_days": 8}}],
    "image.platforms": [{}, {"image": {"platforms": ["linux/amd64", "linux/arm64"]}}],
    "log_days": [{}, {"log_days": 7}],
    "addon_versions": [{}, {"addon_versions": {"coredns": "v1.12.3-eksbuild.1"}}],
}

JOB = {"name": "digits", "recipe": "digits", "resources": {"cpu": 1, "memory": "4Gi"}}
"""Job on the trainer image. Without such a job, the program builds no image."""
VALIDATION_ONLY_KEYS = {"kind", "check_availability", "pools.check_zones"}
"""Keys that affect only validation, not resources."""


def plan(kind: str, key: str, settings: dict[str, Any]) -> str:
    """Return the plan of a platform: resources in a fixed order, names of retained resources, and outputs."""
    project = {"project": "some-project"} if kind == "gke" else {}
    engine, exported = graph({"kind": kind, **project, **settings}, [JOB] if key.startswith("image.") else [])
    resources = sorted(
        json.dumps([record.type, record.name, record.inputs], sort_keys=True, default=str) for record in engine.records
    )
    kept = sorted(name for name, request in engine.requests.items() if request.retainOnDelete)
    return json.dumps([resources, kept, exported], sort_keys=True, default=str)


def keys(model: type[BaseModel], prefix: str = "") -> set[str]:
    """Return the keys of a section and of all sections below it."""
    found = set()
    for name, field in model.model_fields.items():
        inner = [each for each in (field.annotation, *get_args(field.annotation)) if isinstance(each, type)]
        sections = [each for each in inner if issubclass(each, BaseModel)]
        found |= keys(sections[0], f"{prefix}{name}.") if sections else {f"{prefix}{name}"}
    return found


@pytest.mark.parametrize("key", GKE_KEYS)
def test_gke_key_changes_the_plan(key: str) -> None:
    one, other = GKE_KEYS[key]
    assert plan("gke", key, one) != plan("gke", key, other)


@pytest.mark.parametrize("key", EKS_KEYS)
def test_eks_key_changes_the_plan(key: str) -> None:
    one, other = EKS_KEYS[key]
    assert plan("eks", key, one) != plan("eks", key, other)


def test_cloud_keys_are_all_compared() -> None:
    assert set(GKE_KEYS) | VALIDATION_ONLY_KEYS == keys(GkeConfig)
    assert set(EKS_KEYS) | VALIDATION_ONLY_KEYS - {"pools.check_zones"} == keys(EksConfig)
