"""Reports about typical pull requests: what a reviewer must see, in few lines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commands import preview
from tests.commands.pull_requests import JOB, STACK, changed_stack, markdown_report, report

SCREEN_LINES = 40
"""Number of lines that most reports must fit in."""


def test_report_grown_pool_shows_update_quota_and_cost() -> None:
    found = markdown_report(changed_stack({"nodes": 4}))
    assert "Update 1: 1 NodePool\n- `gpus-nodes`: autoscaling" in found
    assert "us-central1 PREEMPTIBLE_NVIDIA_T4_GPUS: 4 -> 8" in found
    before, after = next(line for line in found.splitlines() if line.startswith("| gpus")).split("|")[2:4]
    assert float(after) == pytest.approx(2 * float(before), abs=0.02)
    assert "passes" in found.splitlines()[0]
    assert len(found.splitlines()) <= SCREEN_LINES


def test_report_changed_machine_type_warns_that_gke_recreates_nodes() -> None:
    found = markdown_report(changed_stack({"machine_type": "n1-standard-16"}))
    assert found.splitlines()[2] == "Update 1: 1 NodePool"
    line = next(each for each in found.splitlines() if each.startswith("- `gpus-nodes`: nodeConfig"))
    assert line.endswith("**GKE recreates the pool's nodes**")
    assert len(found.splitlines()) <= SCREEN_LINES


def test_report_changed_machine_type_with_running_job_fails_unless_allowed() -> None:
    found = report(changed_stack({"machine_type": "n1-standard-16"}), running={"gpus": ["digits"]})
    assert found.failures == [
        "would recycle the nodes of pool gpus, which runs digits; "
        "write `policy: {may_replace: [gpus]}` in the stack to allow this"
    ]
    allowed = changed_stack({"machine_type": "n1-standard-16"}, policy={"may_replace": ["gpus"]})
    assert report(allowed, running={"gpus": ["digits"]}).failures == []


def test_report_added_job_shows_command_of_only_that_job() -> None:
    more = {**JOB, "name": "more", "hosts": 1, "flags": {"batch_size": 64}}
    found = markdown_report(changed_stack({"nodes": 3}, jobs=[JOB, more]))
    assert "- more: `python -m trainer.launch -m trainer digits --batch-size=64`" in found
    assert "- digits: `" not in found
    assert "1 Job" in next(line for line in found.splitlines() if line.startswith("Create"))
    assert len(found.splitlines()) <= SCREEN_LINES


def test_report_spot_to_on_demand_shows_replacement_and_higher_cost() -> None:
    found = markdown_report(changed_stack({"capacity": "on-demand"}))
    assert "**REPLACE** 1: 1 NodePool" in found
    row = next(line for line in found.splitlines() if line.startswith("| gpus")).split("|")
    assert float(row[3]) > 2 * float(row[2])
    assert row[3] == row[4], "the columns `after` and `all on demand` must be equal"
    assert "us-central1 NVIDIA_T4_GPUS: 0 -> 4" in found
    assert len(found.splitlines()) <= SCREEN_LINES


def test_report_count_beyond_quota_fails_with_missing_quota() -> None:
    left = {("PREEMPTIBLE_NVIDIA_T4_GPUS", "us-central1"): 8}
    found = report(changed_stack({"nodes": 32}), remaining_quota=left)
    assert found.failures == [
        "stack needs 60 more of us-central1 PREEMPTIBLE_NVIDIA_T4_GPUS, but only 8 are left; request more quota",
    ]
    assert report(changed_stack({"nodes": 4}), remaining_quota=left).failures == []
    assert "PREEMPTIBLE_NVIDIA_T4_GPUS: 4 -> 64" in markdown_report(changed_stack({"nodes": 32}))


def test_report_publicly_accessible_bucket_fails_policy() -> None:
    found = markdown_report(changed_stack(), program={"gke-dist-bucket": {"publicAccessPrevention": "inherited"}})
    assert "fails" in found.splitlines()[0]
    assert "- **gke-dist-bucket: can be made public (private-buckets)**" in found
    assert "- `gke-dist-bucket`: publicAccessPrevention" in found


def test_report_removed_job_shows_deletion_and_passes() -> None:
    found = markdown_report(changed_stack(jobs=[]))
    assert "**DELETE** " in found
    assert "1 Job" in found
    assert "passes" in found.splitlines()[0]
    assert len(found.splitlines()) <= SCREEN_LINES


def report_of_rejected_settings(
    values: dict[str, Any], folder: Path, monkeypatch: pytest.MonkeyPatch, *lines: str
) -> str:
    """Return the report of `make preview` about invalid settings. `lines` are further settings, as `KEY=VALUE`."""
    settings = {f"trainyard:{key}": value for key, value in values.items()}
    file = "config: " + json.dumps(settings | dict(line.split("=") for line in lines))
    (folder / "Pulumi.dev.yaml").write_text(file, encoding="utf-8")
    monkeypatch.setattr(preview, "PROJECT", folder)
    assert preview.main("dev", output=folder / "out") == 2
    assert json.loads((folder / "out" / "report.json").read_text(encoding="utf-8"))["passes"] is False
    found = (folder / "out" / "report.md").read_text(encoding="utf-8")
    assert len(found.splitlines()) <= SCREEN_LINES
    return found


def test_preview_invalid_topology_is_rejected_with_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pool = {"name": "tpus", "accelerator": "v4-32", "topology": "2x2x2"}
    values = {
        "platform": {"kind": "gke", "project": "some-project", "zone": "us-central2-b", "pools": [pool]},
        "jobs": [],
    }
    found = report_of_rejected_settings(values, tmp_path, monkeypatch)
    assert found.startswith("### Stack `dev` has invalid settings")
    assert "platform.pools[0].topology" in found
    assert "2x2x2 has 8 chips and v4-32 has 16" in found


def test_preview_cleartext_secret_is_rejected_without_its_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    canary = "canary-5f2b77e0"
    values = {**STACK, "jobs": [{**JOB, "secrets": {"WANDB_API_KEY": "wandb"}}]}
    found = report_of_rejected_settings(values, tmp_path, monkeypatch, f"secrets:wandb={canary}")
    assert "secrets:wandb in plain text" in " ".join(found.split())
    assert canary not in found
