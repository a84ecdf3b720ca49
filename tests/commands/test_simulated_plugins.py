"""Simulated plugins in place of official plugins: the simulated plugins plan the same changes as Trainyard."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from commands.review.official import review_by_plugins
from commands.review.plan import difference
from commands.review.recorded import record_program
from simulation.cloud.model import new_state

ROOT = Path(__file__).resolve().parents[2]
A3 = {"name": "gpus", "machine_type": "a3-megagpu-8g"}
GKE: dict[str, Any] = {"kind": "gke", "project": "some-project"}
GKE_IN_TPU_ZONE: dict[str, Any] = {**GKE, "zone": "us-central2-b"}
EKS: dict[str, Any] = {"kind": "eks", "name": "train", "region": "us-west-2"}
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], set[str], set[str]]] = {
    "IP range of the GPU networks": (
        {**GKE, "pools": [A3]},
        {**GKE, "pools": [A3], "network": {"accelerators": "10.128.0.0/16"}},
        {"gpus-nodes", "fabric-gpu-nic-0"},
        {"cluster-control-plane", "system-nodes"},
    ),
    "one GPU host instead of two": (
        {**GKE, "pools": [A3]},
        {**GKE, "pools": [{**A3, "nodes": 1}]},
        {"gpus-nodes"},
        {"cluster-control-plane", "system-nodes"},
    ),
    "topology": (
        {**GKE_IN_TPU_ZONE, "pools": [{"name": "tpu", "accelerator": "v4-32"}]},
        {**GKE_IN_TPU_ZONE, "pools": [{"name": "tpu", "accelerator": "v4-64"}]},
        {"tpu-nodes"},
        {"cluster-control-plane", "system-nodes"},
    ),
    "machine type on EKS": (
        {**EKS, "pools": [{"name": "cpu", "machine_type": "c7i.2xlarge"}]},
        {**EKS, "pools": [{"name": "cpu", "machine_type": "c7i.4xlarge"}]},
        set(),
        {"cluster-eks"},
    ),
}
"""Change -> platform before the change, platform after it, some replaced resources, some kept resources."""


@pytest.fixture
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set PULUMI_HOME to a folder with the simulated plugins in place of the official ones."""
    for package in ("gcp", "aws"):
        name = f"pulumi-resource-{package}"
        folder = tmp_path / "plugins" / f"resource-{package}-v{metadata.version(f'pulumi-{package}')}"
        folder.mkdir(parents=True)
        (folder / name).symlink_to(ROOT / "simulation" / "bin" / name)
    new_state(tmp_path / "clouds")
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path))
    monkeypatch.setenv("TRAINYARD_REHEARSAL", str(tmp_path / "clouds"))


@pytest.mark.usefixtures("_home")
@pytest.mark.parametrize("change", CHANGES)
def test_review_by_plugins_agrees_with_difference(change: str) -> None:
    before, after, replaced, kept = CHANGES[change]
    olds, news = (record_program({"platform": each, "jobs": []}, ()) for each in (before, after))
    steps = difference(olds, news)
    found = review_by_plugins(olds, news, steps)
    assert (found.failures, found.missing, len(found.asked)) == ([], (), 1)
    plan = {each.name: each.action for each in steps}
    assert {name for name in replaced if plan[name] != "replace"} == set()
    assert {name for name in kept if plan[name] in ("replace", "delete")} == set()
