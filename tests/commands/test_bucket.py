"""Files of a bucket: a folder of this machine, or a cloud bucket that `gcloud` or `aws` reads."""

from __future__ import annotations

import resource
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from commands.bucket import Bucket, BucketError, copy_results, fetch, fresh_start
from workloads.user_files import read_script

RECORD = {"checkpoints": "checkpoints/digits", "bucket_prefix": "digits"}
"""Run record of the job `digits`, with the keys that `copy_results` reads."""


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


def test_newest_checkpoint_is_the_last_complete_checkpoint(bucket: Bucket) -> None:
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
def test_copy_results_copies_newest_or_all_checkpoints_and_metrics(
    bucket: Bucket, tmp_path: Path, should_copy_all: bool, saved: list[str]
) -> None:
    copied = copy_results(bucket, RECORD, tmp_path / "out", should_copy_all=should_copy_all)
    assert files_of(tmp_path / "out") == [".gitignore", *saved, "digits/metrics/rank-0.jsonl", "digits/owner"]
    assert all(path.is_dir() for path in copied)


def test_copy_results_into_a_folder_with_sources_hides_only_the_copied_folders(bucket: Bucket, tmp_path: Path) -> None:
    project = tmp_path / "project"
    results = project / "results"
    results.mkdir(parents=True)
    for name in ("train.py", "results/mine.py"):
        (project / name).touch()
    Path(bucket.location("digits/run-record.json")).write_text("{}", encoding="utf-8")
    for _ in range(2):
        copy_results(bucket, RECORD, results, should_copy_all=False)
        assert (results / "digits" / "run-record.json").is_file()
        assert list(read_script("./train.py", project).neighbours) == ["results/mine.py"]


def test_copy_results_of_a_script_copies_files_of_any_name(bucket: Bucket, tmp_path: Path) -> None:
    folder = Path(bucket.location("checkpoints/mine"))
    folder.mkdir()
    (folder / "last.pt").touch()
    copy_results(
        bucket, {"checkpoints": "checkpoints/mine", "bucket_prefix": "mine"}, tmp_path / "out", should_copy_all=False
    )
    assert files_of(tmp_path / "out") == [".gitignore", "checkpoints/mine/last.pt"]


def test_copy_results_of_a_script_warns_about_files_of_an_earlier_copy(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(bucket.location("checkpoints/mine"))
    folder.mkdir()
    record = {"checkpoints": "checkpoints/mine", "bucket_prefix": "mine"}
    (folder / "epoch-2.pt").touch()
    copy_results(bucket, record, tmp_path / "out", should_copy_all=False)
    assert capsys.readouterr().err == ""
    (folder / "epoch-2.pt").rename(folder / "epoch-1.pt")
    copy_results(bucket, record, tmp_path / "out", should_copy_all=False)
    warning = "checkpoints/mine: has files of an earlier copy that are not in the bucket: epoch-2.pt; delete"
    assert warning in capsys.readouterr().err


def test_copy_results_follows_links_of_pods_and_skips_links_without_files(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = Path(bucket.location("checkpoints/mine"))
    folder.mkdir()
    (folder / "epoch-5.pt").write_text("five", encoding="utf-8")
    (folder / "last.pt").symlink_to("/bucket/checkpoints/mine/epoch-5.pt")
    (folder / "gone.pt").symlink_to("/bucket/checkpoints/mine/epoch-4.pt")
    (folder / "latest").symlink_to(".")
    record = {"checkpoints": "checkpoints/mine", "bucket_prefix": "mine"}
    copy_results(bucket, record, tmp_path / "out", should_copy_all=False)
    names = ["epoch-5.pt", "last.pt"]
    assert files_of(tmp_path / "out") == [".gitignore", *(f"checkpoints/mine/{name}" for name in names)]
    assert (tmp_path / "out" / "checkpoints" / "mine" / "last.pt").read_text(encoding="utf-8") == "five"
    warnings = capsys.readouterr().err
    assert "gone.pt: the link's target does not exist or contains the link" in warnings
    assert "latest: the link's target does not exist or contains the link" in warnings


def test_copy_results_with_a_later_checkpoint_of_an_earlier_run_warns(
    bucket: Bucket, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy_results(bucket, RECORD, tmp_path / "out", should_copy_all=False)
    assert capsys.readouterr().err == ""
    (tmp_path / "out" / "checkpoints" / "step-999999999").mkdir()
    copy_results(bucket, RECORD, tmp_path / "out", should_copy_all=False)
    assert "step-999999999 belongs to an earlier run" in capsys.readouterr().err


def files_of(folder: Path) -> list[str]:
    """Return the paths of all files in a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_copy_results_of_a_job_without_files_copies_nothing(bucket: Bucket, tmp_path: Path) -> None:
    record = {"checkpoints": "checkpoints/new", "bucket_prefix": "new"}
    assert copy_results(bucket, record, tmp_path / "out", should_copy_all=True) == []
    # `up` writes the run record before the job has written anything.
    Path(bucket.location("new")).mkdir()
    Path(bucket.location("new"), "run-record.json").write_text("{}", encoding="utf-8")
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
    with pytest.raises(BucketError, match=r"bucket/digits: cannot be copied to .*full/digits: .*metrics"):
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
    add_program(tmp_path, monkeypatch, program, f'echo "{listed}"')
    assert Bucket(url=url, is_cluster_local=False).names("checkpoints/digits") == ["step-000000020"]
    assert (tmp_path / "calls").read_text(encoding="utf-8").endswith(f"ls {url}/checkpoints/digits/\n")


@pytest.mark.parametrize(
    ("url", "program", "command"),
    [
        ("gs://team", "gcloud", "storage cat gs://team/digits/run-record.json"),
        ("s3://team", "aws", "s3 cp s3://team/digits/run-record.json -"),
    ],
)
def test_read_of_a_cloud_copies_only_a_listed_file(
    url: str, program: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_program(tmp_path, monkeypatch, program, 'case "$2" in ls) echo run-record.json;; *) echo text; esac')
    bucket = Bucket(url=url, is_cluster_local=False)
    assert (bucket.read("digits/other.json"), bucket.read("digits/run-record.json")) == ("", "text\n")
    assert (tmp_path / "calls").read_text(encoding="utf-8").splitlines()[-1] == command


def add_program(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, body: str) -> None:
    """Put a program on PATH that writes its arguments to the file `calls`."""
    script = folder / name
    script.write_text(f'#!/bin/sh\necho "$@" >> {folder}/calls\n{body}\n', encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def test_delete_in_s3_has_a_prefix_that_matches_only_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_program(tmp_path, monkeypatch, "aws", "")
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
    add_program(tmp_path, monkeypatch, program, listed)
    time_of_move = Bucket(url=url, is_cluster_local=False).put_curves_aside("digits").rpartition("/")[2]
    moves = [line for line in (tmp_path / "calls").read_text(encoding="utf-8").splitlines() if " mv " in line]
    assert moves == [expected.format(time=time_of_move)]


def test_put_curves_aside_of_a_job_without_curves_changes_nothing(bucket: Bucket) -> None:
    assert bucket.put_curves_aside("checkpoints/digits") == ""
    assert "earlier" not in bucket.names("checkpoints/digits")


def test_fresh_start_returns_time_of_newest_folder_of_earlier_runs() -> None:
    assert fresh_start(["20261126T100000Z", "20261127T064500Z", "notes"]) == "2026-11-27 06:45:00 UTC"
    assert fresh_start([]) == ""


def test_failure_without_a_message_means_an_empty_folder_only_for_a_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_program(tmp_path, monkeypatch, "aws", "exit 1")
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
    with pytest.raises(
        BucketError,
        match=r"nothing to .*/digits or .*/runs/digits yet, and the kubeconfig .* is missing; .* `make up` writes",
    ) as caught:
        fetch("digits", None, should_copy_all=False, as_json=False)
    assert "`make logs" not in str(caught.value)


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Make writes beyond a file size fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


NEWEST = "checkpoints/digits/step-000000020"


def test_copy_that_fails_leaves_no_file_and_names_the_first_error(bucket: Bucket, tmp_path: Path) -> None:
    for name in ("rank-0.safetensors", "rank-1.safetensors"):
        Path(bucket.location(NEWEST), name).write_bytes(bytes(100_000))
    with file_size_limit(50_000), pytest.raises(BucketError) as caught:
        bucket.copy(NEWEST, tmp_path / "out")
    assert str(caught.value) == (
        f"{bucket.location(NEWEST)}: cannot be copied to {tmp_path}/out/step-000000020: "
        "rank-0.safetensors: File too large; check that path, then run the command again"
    )
    assert list((tmp_path / "out").iterdir()) == []


def test_copy_that_fails_keeps_the_older_copy(bucket: Bucket, tmp_path: Path) -> None:
    bucket.copy(NEWEST, tmp_path / "out")
    Path(bucket.location(NEWEST), "rank-0.safetensors").write_bytes(bytes(100_000))
    Path(bucket.location(NEWEST), "checkpoint.json").write_text("newer", encoding="utf-8")
    with file_size_limit(50_000), pytest.raises(BucketError, match="File too large"):
        bucket.copy(NEWEST, tmp_path / "out")
    copy = tmp_path / "out" / "step-000000020"
    assert files_of(tmp_path / "out") == ["step-000000020/checkpoint.json"]
    assert (copy / "checkpoint.json").read_text(encoding="utf-8") != "newer"
    bucket.copy(NEWEST, tmp_path / "out")
    assert (copy / "checkpoint.json").read_text(encoding="utf-8") == "newer"
    assert (copy / "rank-0.safetensors").stat().st_size == 100_000


def test_copy_onto_an_older_copy_moves_the_manifest_last(bucket: Bucket, tmp_path: Path) -> None:
    Path(bucket.location(NEWEST), "rank-0.safetensors").touch()
    (tmp_path / "out" / "step-000000020" / "rank-0.safetensors").mkdir(parents=True)
    with pytest.raises(BucketError, match=r"cannot be copied to .*rank-0.safetensors"):
        bucket.copy(NEWEST, tmp_path / "out")
    assert files_of(tmp_path / "out") == []


def test_copy_follows_links_to_folders(bucket: Bucket, tmp_path: Path) -> None:
    Path(bucket.location("checkpoints/digits/latest")).symlink_to("step-000000020")
    bucket.copy("checkpoints/digits", tmp_path / "out")
    assert "digits/latest/checkpoint.json" in files_of(tmp_path / "out")


@pytest.mark.parametrize(("url", "program"), [("gs://team", "gcloud"), ("s3://team", "aws")])
def test_copy_from_a_cloud_that_fails_leaves_no_file(
    url: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # gcloud creates the copied folder inside the last argument; aws writes the folder's files directly into it.
    folder = "$last/step-000000020" if program == "gcloud" else "$last"
    body = f'for last; do :; done; mkdir -p "{folder}"; touch "{folder}/checkpoint.json"'
    add_program(tmp_path, monkeypatch, program, f"{body}; echo 'No space left on device' >&2; exit 1")
    with pytest.raises(BucketError, match="No space left on device"):
        Bucket(url=url, is_cluster_local=False).copy(NEWEST, tmp_path / "out")
    assert list((tmp_path / "out").iterdir()) == []
    add_program(tmp_path, monkeypatch, program, body)
    Bucket(url=url, is_cluster_local=False).copy(NEWEST, tmp_path / "out")
    assert (tmp_path / "out" / "step-000000020" / "checkpoint.json").is_file()


@pytest.mark.parametrize("to", ["bucket", "bucket/export", "link", "."])
def test_copy_results_into_the_bucket_is_rejected(bucket: Bucket, tmp_path: Path, to: str) -> None:
    (tmp_path / "link").symlink_to("bucket")
    if to == ".":  # The results would be copied to `./checkpoints`, which is the bucket.
        tmp_path.joinpath("bucket").rename(tmp_path / "checkpoints")
        bucket = Bucket(url=f"file://{tmp_path}/checkpoints", is_cluster_local=True)
    before = files_of(tmp_path)
    with pytest.raises(BucketError, match=r"is in the stack's bucket .*; name another folder with `TO=FOLDER`"):
        copy_results(bucket, RECORD, tmp_path / to, should_copy_all=True)
    assert files_of(tmp_path) == before
