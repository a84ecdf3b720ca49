"""`make preview`: base commit, operators' objects, credentials, invalid options, and the running jobs of each pool."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from commands import preview
from commands.interrupts import CommandError, ExitStatus
from commands.monitor.cluster import Cluster, Forbidden, StackOutputs, Unreachable
from commands.monitor.pod_state import PodState
from commands.preview import jobs_by_pool
from commands.rehearse import __main__ as rehearse
from infra.naming import POOL_LABEL
from workloads.user_files import read_script

FILE = "Pulumi.dev.yaml"
IDENTITY = ("-c", "user.name=tester", "-c", "user.email=tester@example.com")


def git(folder: Path, *words: str) -> None:
    """Run git in a folder."""
    subprocess.run(["git", *IDENTITY, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """Return a repository whose `main` has the stack, and whose branch `change` changes the stack."""
    folder = tmp_path / "origin"
    folder.mkdir()
    git(folder, "init", "--initial-branch=main")
    for branch in ("main", "change"):
        git(folder, "checkout", "-B", branch)
        (folder / FILE).write_text(branch, encoding="utf-8")
        git(folder, "add", FILE)
        git(folder, "commit", "--message", branch)
    return folder


def base_settings(folder: Path, monkeypatch: pytest.MonkeyPatch, base: str | None = None) -> str | None:
    """Return the text of the stack's settings at the base commit, or None without a commit."""
    monkeypatch.setattr(preview, "PROJECT", folder)
    return preview._earlier(FILE, preview._base(base))


def test_default_base_is_main(origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert base_settings(origin, monkeypatch) == "main"


def test_default_base_in_a_single_branch_clone_is_origin_main(
    origin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "clone", "--branch=change", str(origin), "clone")
    assert base_settings(tmp_path / "clone", monkeypatch) == "main"


def test_default_base_without_git_history_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert base_settings(tmp_path, monkeypatch) is None


def test_base_of_an_unknown_revision_raises_with_its_name(origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"--base gone: git cannot read it \(Not a valid object name gone\); "):
        base_settings(origin, monkeypatch, "gone")


def test_base_outside_a_repository_raises_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"--base main: git cannot read it \(not a git repository"):
        base_settings(tmp_path, monkeypatch, "main")


def test_describe_base_names_commit_and_suggests_engine(origin: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preview, "PROJECT", origin)
    done = subprocess.run(
        ["git", "rev-parse", "--short", "main"], cwd=origin, capture_output=True, text=True, check=True
    )
    commit, short = preview._base(None), done.stdout.strip()
    text = preview.describe_base(commit, is_new=False, engine=False)
    assert text.startswith(f"Before: commit {short} of ")
    assert text.endswith(". `--engine` compares with the deployed stack instead.")
    assert f"because commit {short} of " in preview.describe_base(commit, is_new=True, engine=False)
    assert "no commit to compare with" in preview.describe_base(None, is_new=True, engine=False)
    assert preview.describe_base(commit, is_new=False, engine=True).startswith(
        "Changes: compared with the deployed stack."
    )


def test_preview_with_empty_cache_builds_operator_objects_and_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert preview.main("eks", base="HEAD", no_plugins=True) == 0
    printed = capsys.readouterr()
    assert "Stack eks passes" in printed.out
    assert "Before: commit " in printed.out
    assert "objects of" not in printed.out
    assert "objects of training-operator, training-operator-mxjob, mpi-operator" in printed.err


def test_preview_with_an_unreachable_module_proxy_fails_with_advice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("GOPROXY", "http://127.0.0.1:9")
    assert preview.main("eks", base="HEAD") == 2
    assert "set GOPROXY to a module proxy that this machine can reach" in capsys.readouterr().err


def add_rejecting_gcloud(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a `gcloud` on PATH that accepts the credentials and rejects each query."""
    program = folder / "gcloud"
    program.write_text("#!/bin/sh\n[ $1 = auth ] && exit 0\necho 'ERROR: project p: not allowed' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(program))


def test_preview_with_credentials_that_may_not_query_the_quota_ends_with_the_clouds_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_rejecting_gcloud(tmp_path, monkeypatch)
    with pytest.raises(CommandError, match="the quota cannot be read: `gcloud`: ERROR: project p: not allowed"):
        preview.main("gke-v100", credentials=True, no_plugins=True)


def test_preview_without_credentials_ends_with_the_way_to_log_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    with pytest.raises(CommandError, match="--credentials: this machine has no credentials for Google Cloud; run"):
        preview.main("gke-v100", credentials=True, no_plugins=True)


@pytest.mark.parametrize("error", [Unreachable("connection refused"), Forbidden("no permission to list nodes")])
def test_running_jobs_of_a_cluster_that_does_not_report_them_is_an_error(
    error: Unreachable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cluster(_self: StackOutputs) -> Cluster:
        raise error

    found = {"kubeconfig_path": str(tmp_path / "kubeconfig"), "namespace": "training", "jobs": []}
    monkeypatch.setattr(preview, "stack_exists", lambda _stack: True)
    monkeypatch.setattr(preview, "outputs", lambda _stack: found)
    monkeypatch.setattr(StackOutputs, "cluster", cluster)
    message = f"--credentials: stack gke-v100: its cluster did not report the running jobs: {error}; check your permiss"
    with pytest.raises(CommandError, match=message):
        preview.running_jobs("gke-v100")
    monkeypatch.setattr(preview, "outputs", lambda _stack: {})
    assert preview.running_jobs("gke-v100") == {}


@pytest.mark.parametrize("text", ["abc", "us-central1/NVIDIA_T4_GPUS=many", "=4"])
def test_rehearse_with_a_quota_that_is_not_a_name_and_a_limit_is_rejected(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rehearse.main(["gke-v100", "--quota", text]) == ExitStatus.USAGE
    assert capsys.readouterr().err == f"--quota {text}: must be NAME=LIMIT, such as us-central1/NVIDIA_T4_GPUS=4\n"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("none.json", "none.json: cannot be read"),
        (FILE, "name a file with the output of `python -m commands.rehearse STACK --json`"),
    ],
)
def test_preview_with_an_invalid_rehearsal_file_exits_with_advice(
    value: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert preview.main("dev", rehearsal=Path(value)) == ExitStatus.USAGE
    assert message in capsys.readouterr().err


def pod(job: str, node: str, state: str = "running") -> PodState:
    """Return a pod of a job on a node."""
    return PodState(uid=job, name=job, job=job, index=0, processes=1, node=node, state=state)


def node(name: str, pool: str | None) -> dict[str, Any]:
    """Return a node, as the API returns it."""
    return {"metadata": {"name": name, "labels": {POOL_LABEL: pool} if pool else {}}}


NODES = [node("a", "gpus"), node("b", "gpus"), node("c", "tpus"), node("d", None)]


def test_jobs_by_pool_maps_active_pods_to_pools_of_their_nodes() -> None:
    pods = [pod("digits", "a"), pod("digits", "b"), pod("more", "b", "pending"), pod("spmd", "c")]
    assert jobs_by_pool(pods, NODES) == {"gpus": ["digits", "more"], "tpus": ["spmd"]}


def test_jobs_by_pool_omits_ended_unscheduled_and_unpooled_pods() -> None:
    pods = [pod("done", "a", "succeeded"), pod("lost", "a", "failed"), pod("waits", "", "pending"), pod("x", "d")]
    assert jobs_by_pool(pods, NODES) == {}


def test_preview_output_in_a_new_folder_is_kept_out_of_the_sources_of_a_script(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    preview._write("text", {}, tmp_path / "review")
    assert (tmp_path / "review" / "report.json").is_file()
    assert dict(read_script("./train.py", tmp_path).neighbours) == {}
