"""Ten pull requests: each report shows what a careful reviewer must see, and a small report fits a screen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commands import preview
from tests.commands.pull_requests import JOB, STACK, changed, report, text

SCREEN = 40
"""Number of lines of a screen."""


def test_grow_a_pool() -> None:
    found = text(changed({"nodes": 4}))
    assert "Update 1: 1 NodePool\n- `gpus-nodes`: autoscaling" in found
    assert "us-central1 PREEMPTIBLE_NVIDIA_T4_GPUS: 4 -> 8" in found
    before, after = next(line for line in found.splitlines() if line.startswith("| gpus")).split("|")[2:4]
    assert float(after) == pytest.approx(2 * float(before), abs=0.02)
    assert "passes" in found.splitlines()[0]
    assert len(found.splitlines()) <= SCREEN


def test_change_a_machine_type() -> None:
    found = text(changed({"machine_type": "n1-standard-16"}))
    assert found.splitlines()[2] == "Update 1: 1 NodePool"
    line = next(each for each in found.splitlines() if each.startswith("- `gpus-nodes`: nodeConfig"))
    assert line.endswith("**GKE recreates the pool's nodes**")
    assert len(found.splitlines()) <= SCREEN


def test_change_a_machine_type_under_a_running_job() -> None:
    found = report(changed({"machine_type": "n1-standard-16"}), running={"gpus": ["digits"]})
    assert found.failures == [
        "would recycle the nodes of pool gpus, on which digits runs; "
        "write `policy: {may_replace: [gpus]}` in the stack if that is meant"
    ]
    allowed = changed({"machine_type": "n1-standard-16"}, policy={"may_replace": ["gpus"]})
    assert report(allowed, running={"gpus": ["digits"]}).failures == []


def test_add_a_job() -> None:
    more = {**JOB, "name": "more", "hosts": 1, "flags": {"batch_size": 64}}
    found = text(changed({"nodes": 3}, jobs=[JOB, more]))
    assert "- more: `python -m trainer.launch -m trainer digits --batch-size=64`" in found
    assert "- digits: `" not in found
    assert "1 Job" in next(line for line in found.splitlines() if line.startswith("Create"))
    assert len(found.splitlines()) <= SCREEN


def test_drop_spot() -> None:
    found = text(changed({"capacity": "on-demand"}))
    assert "**REPLACE** 1: 1 NodePool" in found
    row = next(line for line in found.splitlines() if line.startswith("| gpus")).split("|")
    assert float(row[3]) > 2 * float(row[2])
    assert row[3] == row[4], "after is all on demand"
    assert "us-central1 NVIDIA_T4_GPUS: 0 -> 4" in found
    assert len(found.splitlines()) <= SCREEN


def test_rename_a_pool() -> None:
    found = report(changed({"name": "other"}), running={"gpus": ["digits"]})
    assert "would delete pool gpus, on which digits runs" in found.failures[0]
    shown = text(changed({"name": "other"}))
    assert shown.index("**DELETE**") < shown.index("Create")
    assert "- `gpus-nodes`" in shown
    assert len(shown.splitlines()) <= SCREEN


def test_raise_a_count_beyond_quota() -> None:
    left = {("PREEMPTIBLE_NVIDIA_T4_GPUS", "us-central1"): 8}
    found = report(changed({"nodes": 32}), quota_left=left)
    assert found.failures == [
        "stack needs 60 more of us-central1 PREEMPTIBLE_NVIDIA_T4_GPUS, of which 8 are left",
    ]
    assert report(changed({"nodes": 4}), quota_left=left).failures == []
    assert "PREEMPTIBLE_NVIDIA_T4_GPUS: 4 -> 64" in text(changed({"nodes": 32}))


def test_open_a_bucket() -> None:
    found = text(changed(), program={"gke-dist-bucket": {"publicAccessPrevention": "inherited"}})
    assert "fails" in found.splitlines()[0]
    assert "- **gke-dist-bucket: can be made public (private-buckets)**" in found
    assert "- `gke-dist-bucket`: publicAccessPrevention" in found


def test_remove_a_job() -> None:
    found = text(changed(jobs=[]))
    assert "**DELETE** " in found
    assert "1 Job" in found
    assert "passes" in found.splitlines()[0]
    assert len(found.splitlines()) <= SCREEN


def refused(values: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str) -> str:
    """Return the output of `make preview` for invalid settings."""
    settings = {f"trainyard:{key}": value for key, value in values.items()}
    file = "config: " + json.dumps(settings | dict(line.split("=") for line in lines))
    (folder / "Pulumi.dev.yaml").write_text(file, encoding="utf-8")
    monkeypatch.setattr(preview, "PROJECT", folder)
    assert preview.main(["--stack", "dev", "--output", str(folder / "out")]) == 2
    assert json.loads((folder / "out" / "report.json").read_text(encoding="utf-8"))["passes"] is False
    found = (folder / "out" / "report.md").read_text(encoding="utf-8")
    assert len(found.splitlines()) <= SCREEN
    return found


def test_break_a_topology(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = {"name": "tpus", "accelerator": "v4-32", "topology": "2x2x2"}
    values = {
        "platform": {"kind": "gke", "project": "some-project", "zone": "us-central2-b", "pools": [pool]},
        "jobs": [],
    }
    found = refused(values, tmp_path, monkeypatch)
    assert found.startswith("### Stack `dev` is refused")
    assert "platform.pools[0].topology" in found
    assert "2x2x2 has 8 chips and v4-32 has 16" in found


def test_leak_a_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    canary = "canary-5f2b77e0"
    values = {**STACK, "jobs": [{**JOB, "secrets": {"WANDB_API_KEY": "wandb"}}]}
    found = refused(values, tmp_path, monkeypatch, f"secrets:wandb={canary}")
    assert "secrets:wandb in clear" in found
    assert canary not in found
