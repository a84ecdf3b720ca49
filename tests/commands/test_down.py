"""`make down`: rejections, order of deletions, kept buckets, recreated log groups, invalid settings, broken states."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

import pytest

from commands import down
from commands.environment import StateBroken
from commands.interrupts import CommandError
from commands.stack import BACKEND_VARIABLE, JOBS_TARGET
from commands.workflows import JOBS_ONLY
from infra.local import lifecycle
from infra.local.settings import stack_cluster

STACK_URN = "urn:pulumi:mine::trainyard::pulumi:pulumi:Stack::trainyard-mine"
JOB_URN = "urn:pulumi:mine::trainyard::trainyard:workloads:TrainingJob::digits"
BUCKET_TYPE = "gcp:storage/bucket:Bucket"
BUCKET_URN = f"urn:pulumi:mine::trainyard::{BUCKET_TYPE}::bucket"
CLUSTER_URN = "urn:pulumi:mine::trainyard::trainyard:local:LocalCluster$pulumi-python:dynamic:Resource::local-processes"
KEEP_FILE = "kept"
"""File in the test's folder that makes the stack keep its bucket."""


def write_settings(folder: Path, platform: dict[str, Any]) -> None:
    """Write the settings of stack `mine`."""
    settings = {"trainyard:platform": platform, "trainyard:jobs": []}
    (folder / "Pulumi.mine.yaml").write_text(json.dumps({"config": settings}), encoding="utf-8")


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Return a list of the Pulumi commands that `down` runs on stack `mine`. Its settings are in the test's folder."""
    called: list[tuple[str, ...]] = []
    resources: list[dict[str, Any]] = [{"urn": urn} for urn in (STACK_URN, JOB_URN)]

    def read_deployment(_stack: str) -> dict[str, Any]:
        keeps = (tmp_path / KEEP_FILE).exists()
        return {"resources": [*resources, {"urn": BUCKET_URN, "type": BUCKET_TYPE, "retainOnDelete": keeps}]}

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv(BACKEND_VARIABLE, f"file://{tmp_path}")
    monkeypatch.setattr(down, "PROJECT", tmp_path)
    monkeypatch.setattr(down, "pulumi", lambda *words, **_named: called.append(words))
    monkeypatch.setattr(down, "read_deployment", read_deployment)
    monkeypatch.setattr(down, "stack_exists", lambda _stack: True)
    monkeypatch.setattr(down, "outputs", lambda _stack: {"jobs": ["digits"], "bucket_url": "gs://checkpoints"})
    for name in ("recover", "adopt_pending", "remove_provider_files"):
        monkeypatch.setattr(down, name, lambda _stack: None)
    return called


GKE = {"kind": "gke", "project": "some-project", "bucket": {"keep": False}}
INVALID_GKE = {**GKE, "kubernetes_version": "1.2"}


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("platform", [GKE, INVALID_GKE, None])
def test_down_ends_jobs_first_and_prints_kept_bucket(
    keep: bool,
    platform: dict[str, Any] | None,
    commands: list[tuple[str, ...]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if platform:
        write_settings(tmp_path, platform)
    if keep:
        (tmp_path / KEEP_FILE).touch()
    assert down.destroy("mine")
    jobs, rest = [words for words in commands if words[0] == "destroy"]
    assert JOBS_TARGET in jobs
    assert jobs[jobs.index("--message") + 1] == JOBS_ONLY
    assert "--target" not in rest
    assert "--message" not in rest
    line = "the bucket gs://checkpoints is kept because of `bucket.keep`; it costs money until you delete it\n"
    assert (line in capsys.readouterr().out) == keep


@pytest.mark.parametrize(("platform", "is_replaced"), [(GKE, False), (INVALID_GKE, True), (None, True)])
def test_down_replaces_invalid_or_missing_settings_for_pulumi(
    platform: dict[str, Any] | None,
    is_replaced: bool,
    commands: list[tuple[str, ...]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if platform:
        write_settings(tmp_path, platform)
    assert down.destroy("mine")
    destroys = [words for words in commands if words[0] == "destroy"]
    assert ["--config-file" in words for words in destroys] == [is_replaced] * 2
    has_note = "Pulumi.mine.yaml: cannot be used" in capsys.readouterr().out
    assert has_note == (platform is INVALID_GKE)


@pytest.mark.parametrize("changes", [{"bucket": {"keep": True}}, {"bucket": {}, "kubernetes_version": "1.2"}])
def test_down_with_keep_only_in_the_settings_fails_before_anything_is_deleted(
    changes: dict[str, Any], commands: list[tuple[str, ...]], tmp_path: Path
) -> None:
    write_settings(tmp_path, {**GKE, **changes})
    words = r"trainyard:platform\.bucket\.keep = true: is not applied yet, .* run `make up STACK=mine`.*; nothing"
    with pytest.raises(CommandError, match=words):
        down.destroy("mine")
    assert commands == []
    (tmp_path / KEEP_FILE).touch()
    assert down.destroy("mine")


@pytest.mark.parametrize("type_", ["gcp:container/cluster:Cluster", "aws:eks/cluster:Cluster"])
def test_down_with_a_protected_cluster_fails_before_anything_is_deleted(
    type_: str, commands: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    urn = f"urn:pulumi:mine::trainyard::{type_}::cluster"
    cluster = {"urn": urn, "type": type_, "outputs": {"deletionProtection": True}}
    monkeypatch.setattr(down, "read_deployment", lambda _stack: {"resources": [{"urn": STACK_URN}, cluster]})
    words = (
        r"trainyard:platform\.deletion_protection = true: .* `false`, run `make up .*`, then `make down .*`; nothing"
    )
    with pytest.raises(CommandError, match=words):
        down.destroy("mine")
    assert commands == []
    cluster["outputs"] = {"deletionProtection": False}
    assert down.destroy("mine")


def test_down_with_a_cluster_in_another_cache_fails_before_anything_is_deleted(
    commands: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = stack_cluster(str(tmp_path), "mine")
    cluster.bucket.mkdir(parents=True)
    resources = [{"urn": CLUSTER_URN, "outputs": {"owner": cluster.owner, "bucket_path": str(cluster.bucket)}}]
    monkeypatch.setattr(down, "read_deployment", lambda _stack: {"resources": resources})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "new"))
    with pytest.raises(CommandError, match=f"run the command with XDG_CACHE_HOME={tmp_path}/cache; .*nothing was"):
        down.destroy("mine")
    assert commands == []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert down.destroy("mine")


@pytest.mark.parametrize("error", [None, FileNotFoundError(2, "aws"), CalledProcessError(254, "aws")])
def test_down_deletes_the_log_group_that_eks_creates_again(
    error: Exception | None, commands: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    arn = "arn:aws:eks:eu-west-1:123456789012:cluster/mine"
    urn = "urn:pulumi:mine::trainyard::aws:eks/cluster:Cluster::cluster-eks"
    cluster = {"urn": urn, "type": "aws:eks/cluster:Cluster", "id": "mine", "outputs": {"arn": arn}}

    def run_json(*words: str) -> None:
        commands.append(words)
        if error:
            raise error

    monkeypatch.setattr(down, "run_json", run_json)
    monkeypatch.setattr(down, "read_deployment", lambda _stack: {"resources": [{"urn": STACK_URN}, cluster]})
    assert down.destroy("mine")
    *_, destroy, delete = commands
    assert destroy[0] == "destroy"
    assert " ".join(delete) == "aws logs delete-log-group --log-group-name=/aws/eks/mine/cluster --region=eu-west-1"


@pytest.mark.parametrize(
    ("urns", "expected"),
    [
        ([STACK_URN, JOB_URN], True),
        ([STACK_URN, JOB_URN, CLUSTER_URN], False),  # The jobs end with their cluster.
        ([STACK_URN], False),  # An interrupted `down` has deleted the jobs. The outputs still name them.
    ],
)
def test_should_delete_jobs_first_only_if_the_state_has_jobs_outside_of_a_local_cluster(
    urns: list[str], expected: bool
) -> None:
    assert down.should_delete_jobs_first([{"urn": urn} for urn in urns]) is expected


@pytest.mark.parametrize(
    ("platform", "text"),
    [
        ({"kind": "local"}, "nothing is left; took"),
        (
            GKE,
            "in the stack's state or on this machine; `make verify-empty STACK=mine` checks the cloud",
        ),
        (None, "nothing is left in the stack's state or on this machine; took"),
    ],
)
@pytest.mark.usefixtures("commands")
def test_down_says_where_nothing_is_left(
    platform: dict[str, Any] | None,
    text: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if platform:
        write_settings(tmp_path, platform)
    assert down.take_down("mine") == 0
    assert text in capsys.readouterr().out


def break_state(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the state of the stack unreadable."""

    def recover(_stack: str) -> None:
        raise StateBroken("mine.json is damaged and has no intact copy")

    monkeypatch.setattr(down, "recover", recover)


def test_down_of_a_local_stack_with_broken_state_resets_the_state(
    commands: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_settings(tmp_path, {"kind": "local"})
    cluster = stack_cluster(str(tmp_path), "mine")
    cluster.folder.mkdir(parents=True)
    break_state(monkeypatch)
    monkeypatch.setattr(down, "reset_state", lambda _stack: tmp_path / "mine.json.broken")
    assert down.take_down("mine") == 0
    assert lifecycle.find_leftovers(cluster) == []
    assert commands == []
    output = capsys.readouterr().out
    assert "the broken state is kept as" in output
    assert "nothing is left" in output


@pytest.mark.parametrize("platform", [GKE, {**GKE, "nodes": -1}])
def test_down_with_broken_state_of_cloud_or_invalid_settings_fails(
    platform: dict[str, Any], commands: list[tuple[str, ...]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_settings(tmp_path, platform)
    break_state(monkeypatch)
    with pytest.raises(StateBroken):
        down.take_down("mine")
    assert commands == []


def test_down_without_settings_file_and_resources_has_nothing_to_do(
    commands: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(down, "read_deployment", lambda _stack: {})
    assert down.take_down("mine") == 0
    assert "nothing to do: the stack has no resources" in capsys.readouterr().out
    assert commands == []


def test_down_without_settings_file_and_state_is_an_error(
    commands: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(down, "stack_exists", lambda _stack: False)
    with pytest.raises(CommandError, match="no such file"):
        down.take_down("mine")
    assert commands == []
