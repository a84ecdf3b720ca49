"""Run record: source state, price, plan digest, and writing to the bucket."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from commands.bucket import Bucket, BucketError
from commands.job_results import WriteFailed, complete_record, recorded, write_record, write_records
from commands.monitor.job_state import JobState
from stack.config import parse
from stack.run_record import plan_digest, run_records, source_state
from tests.commands.pull_requests import JOB, STACK, changed_stack

FINISHED_JOB = JobState(
    name="digits", kind="indexed-job", state="complete", started="2026-11-21T10:00:00Z", finished="2026-11-21T11:30:00Z"
)


def finished_record() -> dict[str, Any]:
    """Return the record of a finished run."""
    config = parse(STACK)
    return complete_record(run_records(config)[config.jobs[0].name], FINISHED_JOB)


def test_run_record_holds_source_state_pools_chips_and_price() -> None:
    config = parse(STACK)
    found = run_records(config)[config.jobs[0].name]
    assert {key: found[key] for key in ("commit", "dirty", "diff_digest")} == asdict(source_state())
    assert (found["pools"], found["chips"]) == (["gpus"], 4)
    assert found["usd_per_hour"] == pytest.approx(0.906, abs=0.01)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a git checkout with one commit, independent of the machine's git settings."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "train.py").write_text("one", encoding="utf-8")
    (folder / "Pulumi.dev.yaml").write_text("config: {}", encoding="utf-8")
    name = ("-c", "user.name=tests", "-c", "user.email=tests@localhost")
    for words in (["init", "--quiet"], ["add", "."], [*name, "commit", "--quiet", "--message=first"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    source_state.cache_clear()
    yield folder
    source_state.cache_clear()


def test_source_state_with_only_settings_changed_is_not_dirty(checkout: Path) -> None:
    (checkout / "Pulumi.dev.yaml").write_text("config: {key: value}", encoding="utf-8")
    found = source_state(checkout)
    assert (len(found.commit), found.dirty, found.diff_digest) == (40, False, None)


@pytest.mark.parametrize("name", ["train.py", "new.py"])
def test_source_state_of_changed_files_is_dirty_with_a_digest(checkout: Path, name: str) -> None:
    (checkout / name).write_text("two", encoding="utf-8")
    first = source_state(checkout)
    assert first.dirty is True
    assert str(first.diff_digest).startswith("sha256:")
    (checkout / name).write_text("three", encoding="utf-8")
    source_state.cache_clear()
    assert source_state(checkout).diff_digest != first.diff_digest
    (checkout / name).write_text("two", encoding="utf-8")
    source_state.cache_clear()
    assert source_state(checkout) == first


def test_source_state_without_git_is_unknown(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(checkout / ".git")
    unknown = {"commit": "unknown", "dirty": "unknown", "diff_digest": None}
    assert asdict(source_state(checkout)) == unknown
    source_state.cache_clear()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert asdict(source_state(checkout)) == unknown


def test_run_record_of_hosts_that_share_a_node_divides_the_price_of_the_node() -> None:
    config = parse(STACK)
    whole = run_records(config)[config.jobs[0].name]["usd_per_hour"]
    halves = parse(changed_stack(jobs=[{**JOB, "accelerators_per_host": 1, "hosts": 2}]))
    found = run_records(halves)[halves.jobs[0].name]
    assert found["chips"] == 2
    assert found["usd_per_hour"] == pytest.approx(whole / 2, abs=0.001)


def test_plan_digest_changes_only_with_the_settings() -> None:
    config = parse(STACK)
    digest = plan_digest(config, config.jobs[0])
    assert plan_digest(parse(STACK), parse(STACK).jobs[0]) == digest
    other = parse(changed_stack({"nodes": 4}))
    assert plan_digest(other, other.jobs[0]) != digest
    other = parse(changed_stack(jobs=[{**JOB, "flags": {"epochs": 3}}]))
    assert plan_digest(other, other.jobs[0]) != digest


def test_run_record_of_a_machine_without_a_price_has_no_price() -> None:
    platform = {"kind": "eks", "pools": [{"name": "h200", "machine_type": "p5e.48xlarge", "nodes": 1}]}
    job = {**JOB, "accelerator": "nvidia-h200-141gb", "accelerators_per_host": 8, "hosts": 1}
    config = parse({"platform": platform, "jobs": [job]})
    found = run_records(config)[config.jobs[0].name]
    assert (found["pools"], found["chips"], found["usd_per_hour"]) == (["h200"], 8, None)
    assert complete_record(found, FINISHED_JOB)["usd"] is None


def test_write_record_of_a_finished_run_stores_chip_hours_and_price(tmp_path: Path) -> None:
    found = finished_record()
    assert (found["hours"], found["chip_hours"]) == (1.5, 6.0)
    assert found["usd"] == pytest.approx(1.5 * found["usd_per_hour"], abs=0.001)
    written = write_record(f"file://{tmp_path}", found)
    assert json.loads(Path(written.removeprefix("file://")).read_text(encoding="utf-8")) == found
    assert written == f"file://{tmp_path}/digits/run-record.json"


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root can change the owner of a folder, and only root has a local cluster"
)
def test_write_record_gives_its_folder_to_the_owner_of_the_bucket(tmp_path: Path) -> None:
    os.chown(tmp_path, 1000, 1000)
    written = Path(write_record(f"file://{tmp_path}", finished_record()).removeprefix("file://"))
    assert [(made.stat().st_uid, made.stat().st_gid) for made in (written, written.parent)] == [(1000, 1000)] * 2


def test_write_record_to_an_unwritable_bucket_names_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = finished_record()
    (tmp_path / "digits").write_text("a file", encoding="utf-8")
    with pytest.raises(WriteFailed, match=r"digits/run-record\.json: cannot be written: .*File exists"):
        write_record(f"file://{tmp_path}", record)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(WriteFailed, match=r"gs://bucket/digits/run-record\.json: cannot be written: .*'gcloud'"):
        write_record("gs://bucket", record)


@pytest.mark.parametrize(
    ("scheme", "is_cluster_local", "message"),
    [
        ("file", False, ""),
        ("file", True, "run record in file:///"),
        ("gs", False, "only in the output `run_records`: `gcloud` is not installed"),
    ],
    ids=["volume in another cluster", "folder of this machine", "cloud without gcloud"],
)
def test_write_records_skips_a_bucket_in_another_cluster_and_reports_a_failed_write(
    scheme: str,
    is_cluster_local: bool,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outputs = {"bucket_url": f"{scheme}://{tmp_path}", "run_records": {"digits": finished_record()}}
    monkeypatch.setenv("PATH", str(tmp_path))
    write_records({"digits": FINISHED_JOB}, outputs, is_cluster_local=is_cluster_local)
    printed = capsys.readouterr()
    assert message in printed.out + printed.err
    assert bool(printed.out + printed.err) == bool(message)
    assert (tmp_path / "digits").exists() == is_cluster_local


@pytest.mark.parametrize(
    ("uid", "commit", "chip_hours"),
    [("first", "A", 6.0), ("second", "B", 3.0)],
    ids=["same run", "job started again"],
)
def test_write_records_keeps_the_commit_and_chips_of_the_same_run(
    tmp_path: Path, uid: str, commit: str, chip_hours: float
) -> None:
    planned = {key: value for key, value in finished_record().items() if key not in ("uid", "state")}
    running = replace(FINISHED_JOB, uid="first", state="running", finished="")
    outputs = {"bucket_url": f"file://{tmp_path}", "run_records": {"digits": {**planned, "commit": "A"}}}
    write_records({"digits": running}, outputs, is_cluster_local=True, is_quiet=True)
    file = tmp_path / "digits" / "run-record.json"
    begun = json.loads(file.read_text(encoding="utf-8"))
    assert [begun[key] for key in ("commit", "uid", "state", "hours")] == ["A", "first", "running", None]
    outputs["run_records"] = {"digits": {**planned, "commit": "B", "chips": 2}}
    over = replace(FINISHED_JOB, uid=uid)
    records = write_records({"digits": over}, outputs, is_cluster_local=True, is_quiet=True)
    found = json.loads(file.read_text(encoding="utf-8"))
    assert records == {"digits": found}
    assert [found[key] for key in ("commit", "uid", "state", "chip_hours")] == [commit, uid, "complete", chip_hours]


def test_recorded_falls_back_to_the_planned_record_if_the_file_is_incomplete(tmp_path: Path) -> None:
    bucket, planned = Bucket(url=f"file://{tmp_path}", is_cluster_local=True), finished_record()
    (tmp_path / "digits").mkdir()
    for text in (b'{"uid": ', b"[]", b"", b"\xff"):
        (tmp_path / "digits" / "run-record.json").write_bytes(text)
        assert recorded(bucket, planned, FINISHED_JOB) is planned


def test_write_records_does_not_replace_a_record_that_it_cannot_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def read(_bucket: Bucket, path: str) -> str:
        raise BucketError(f"{path}: access denied")

    monkeypatch.setattr(Bucket, "read", read)
    outputs = {"bucket_url": f"file://{tmp_path}", "run_records": {"digits": finished_record()}}
    write_records({"digits": FINISHED_JOB}, outputs, is_cluster_local=True)
    assert "only in the output `run_records`: digits/run-record.json: access denied" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
