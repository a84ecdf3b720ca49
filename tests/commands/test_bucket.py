"""Files of a bucket: in a folder of this machine, and with the commands of a cloud's bucket."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from commands.bucket import Bucket, BucketError, copy_results, fetch, fresh_start

RECORD = {"checkpoints": "checkpoints/digits", "bucket_prefix": "digits"}


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    """Return a bucket with two complete checkpoints, an incomplete one, a lease file and metrics."""
    root = tmp_path / "bucket"
    for name in (
        "checkpoints/digits/step-000000010/checkpoint.json",
        "checkpoints/digits/step-000000020/checkpoint.json",
        "checkpoints/digits/step-000000030/part",
        "checkpoints/other/step-000000030/part",
        "digits/metrics/rank-0.jsonl",
        "digits/owner",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(name, encoding="utf-8")
    return Bucket(url=f"file://{root}", is_cluster_local=True)


def test_newest_checkpoint_is_the_last_complete_one(bucket: Bucket) -> None:
    assert bucket.newest_checkpoint("checkpoints/digits") == "step-000000020"
    assert bucket.newest_checkpoint("checkpoints/missing") == ""


@pytest.mark.parametrize(
    ("should_copy_all", "saved"),
    [
        (False, ["checkpoints/step-000000020/checkpoint.json"]),
        (
            True,
            [
                "checkpoints/digits/step-000000010/checkpoint.json",
                "checkpoints/digits/step-000000020/checkpoint.json",
                "checkpoints/digits/step-000000030/part",
            ],
        ),
    ],
)
def test_copy_results_copies_newest_checkpoint_and_metrics(
    bucket: Bucket, tmp_path: Path, should_copy_all: bool, saved: list[str]
) -> None:
    copied = copy_results(bucket, RECORD, tmp_path / "out", should_copy_all=should_copy_all)
    assert files_of(tmp_path / "out") == [".gitignore", *saved, "digits/metrics/rank-0.jsonl", "digits/owner"]
    assert all(path.is_dir() for path in copied)


def test_copy_results_of_a_script_copies_what_it_saved_under_any_name(bucket: Bucket, tmp_path: Path) -> None:
    folder = Path(bucket.location("checkpoints/mine"))
    folder.mkdir()
    (folder / "last.pt").touch()
    copy_results(
        bucket, {"checkpoints": "checkpoints/mine", "bucket_prefix": "mine"}, tmp_path / "out", should_copy_all=False
    )
    assert files_of(tmp_path / "out") == [".gitignore", "checkpoints/mine/last.pt"]


def files_of(folder: Path) -> list[str]:
    """Return the paths of all files in a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_copy_results_of_a_job_without_files_copies_nothing(bucket: Bucket, tmp_path: Path) -> None:
    record = {"checkpoints": "checkpoints/new", "bucket_prefix": "new"}
    assert copy_results(bucket, record, tmp_path / "out", should_copy_all=True) == []
    assert not (tmp_path / "out").exists()


def test_delete_removes_only_the_folder(bucket: Bucket) -> None:
    bucket.delete("checkpoints/digits")
    bucket.delete("checkpoints/digits")
    assert bucket.names("checkpoints") == ["other"]
    assert bucket.names("digits") == ["metrics", "owner"]


def test_copy_to_a_file_is_an_error_with_both_paths(bucket: Bucket, tmp_path: Path) -> None:
    (tmp_path / "full" / "digits").mkdir(parents=True)
    (tmp_path / "full" / "digits" / "metrics").touch()
    with pytest.raises(BucketError, match=r"bucket/digits cannot be copied to .*full/digits: .*metrics"):
        bucket.copy("digits", tmp_path / "full")


@pytest.mark.parametrize("url", ["file:///bucket", ""])
def test_bucket_in_another_cluster_is_an_error_with_a_remedy(url: str) -> None:
    with pytest.raises(BucketError, match="is a volume in the cluster, which this machine cannot reach"):
        Bucket(url=url, is_cluster_local=False).names("digits")


@pytest.mark.parametrize(
    ("url", "program", "listed"),
    [
        ("gs://team", "gcloud", "gs://team/checkpoints/digits/step-000000020/"),
        ("s3://team", "aws", "                           PRE step-000000020/"),
    ],
)
def test_bucket_of_a_cloud_is_listed_by_its_command(
    url: str, program: str, listed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_program(tmp_path, monkeypatch, program, f'echo "{listed}"')
    assert Bucket(url=url, is_cluster_local=False).names("checkpoints/digits") == ["step-000000020"]
    assert (tmp_path / "calls").read_text(encoding="utf-8").endswith(f"ls {url}/checkpoints/digits/\n")


def set_program(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, body: str) -> None:
    """Put a program on PATH that writes its arguments to the file `calls`."""
    script = folder / name
    script.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{body}\n', encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_delete_in_s3_has_a_prefix_that_matches_only_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_program(tmp_path, monkeypatch, "aws", "")
    Bucket(url="s3://team", is_cluster_local=False).delete("checkpoints/digits")
    assert (tmp_path / "calls").read_text(encoding="utf-8") == "s3 rm --recursive s3://team/checkpoints/digits/\n"


@pytest.mark.parametrize(
    ("url", "program", "expected"),
    [
        ("gs://team", "gcloud", "storage mv gs://team/digits/metrics gs://team/digits/earlier/{time}/metrics"),
        ("s3://team", "aws", "s3 mv --recursive s3://team/digits/metrics/ s3://team/digits/earlier/{time}/metrics/"),
    ],
)
def test_put_curves_aside_in_a_cloud_moves_only_the_folders_with_curves(
    url: str, program: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = f'case "$2" in ls) echo {url}/digits/metrics/; echo {url}/digits/earlier/; esac'
    set_program(tmp_path, monkeypatch, program, listed)
    time_of_move = Bucket(url=url, is_cluster_local=False).put_curves_aside("digits").rpartition("/")[2]
    moves = [line for line in (tmp_path / "calls").read_text(encoding="utf-8").splitlines() if " mv " in line]
    assert moves == [expected.format(time=time_of_move)]


def test_put_curves_aside_of_a_job_without_curves_changes_nothing(bucket: Bucket) -> None:
    assert bucket.put_curves_aside("checkpoints/digits") == ""
    assert "earlier" not in bucket.names("checkpoints/digits")


def test_fresh_start_is_the_time_of_the_newest_earlier_runs() -> None:
    assert fresh_start(["20261126T100000Z", "20261127T064500Z", "notes"]) == "2026-11-27 06:45:00 UTC"
    assert fresh_start([]) == ""


def test_failure_without_a_message_means_an_empty_folder_only_for_a_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_program(tmp_path, monkeypatch, "aws", "exit 1")
    bucket = Bucket(url="s3://team", is_cluster_local=False)
    assert bucket.names("checkpoints/missing") == []
    with pytest.raises(BucketError, match=r"`aws s3 rm .*` failed: exit status 1"):
        bucket.delete("checkpoints/digits")


def test_missing_program_of_a_cloud_is_an_error_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BucketError, match="`gcloud` is not installed"):
        Bucket(url="gs://team", is_cluster_local=False).names("digits")


def test_fetch_of_a_job_without_files_and_without_a_cluster_does_not_advise_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {
        "kubeconfig_path": str(tmp_path / "none"),
        "namespace": "training",
        "jobs": ["digits"],
        "run_records": {"digits": {"checkpoints": "digits", "bucket_prefix": "runs/digits"}},
        "bucket_url": f"file://{tmp_path}",
    }
    monkeypatch.setenv("STACK", "local")
    monkeypatch.setattr("commands.bucket.outputs_with", lambda *_names: found)
    with pytest.raises(BucketError, match=r"has written nothing .* yet, and the kubeconfig .* is missing; `make up`"):
        fetch("digits", None, should_copy_all=False, as_json=False)
