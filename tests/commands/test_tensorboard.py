"""`make tensorboard`: the real server on a bucket with a curve, its log folder, missing stacks, ports in use."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bench.measure import free_port
from commands import profile
from commands.environment import PROJECT
from commands.interrupts import CommandError
from commands.monitor.cluster import StackNotFound, UnknownStack, check_settings_file
from commands.profile import ProfileError, check_port, command_line, log_folder, serve_tensorboard
from trainer.reporter import Record, TensorBoard
from trainer.storage import Folder

START_SECONDS = 90.0

STACK_OUTPUTS: dict[str, Any] = {
    "kubeconfig_path": "/k",
    "namespace": "training",
    "jobs": ["digits"],
    "run_records": {},
}


def get_json(address: str) -> Any:
    """Return the JSON response of a server. Wait until the server answers."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(address, timeout=10) as reply:
                return json.load(reply)
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < deadline
            time.sleep(0.5)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Yield the address of a TensorBoard server for a bucket with the curve of one job."""
    subprocess.run(["setup/python", ".venv-tensorboard", "requirements-tensorboard.txt"], cwd=PROJECT, check=True)
    sink = TensorBoard(Folder(f"file://{tmp_path}/digits/tensorboard"))
    for step in range(1, 4):
        sink.write(Record(name="train", time=0.0, values={"loss": 1.0 / step}, global_step=step))
    sink.close()
    port = str(free_port())
    process = subprocess.Popen(
        command_line(f"file://{tmp_path}", "", port), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    yield f"http://localhost:{port}"
    process.terminate()
    process.wait(timeout=30)


def test_server_serves_scalars_and_profile_plugin(server: str) -> None:
    assert "profile" in get_json(f"{server}/data/plugins_listing")
    deadline = time.monotonic() + START_SECONDS
    while not (tags := get_json(f"{server}/data/plugin/scalars/tags")):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert list(tags) == ["digits/tensorboard"]
    points = get_json(f"{server}/data/plugin/scalars/scalars?run=digits/tensorboard&tag=train/loss")
    assert [step for _, step, _ in points] == [1, 2, 3]


@pytest.mark.parametrize(
    ("bucket", "job", "expected"),
    [
        ("file:///data/bucket", "", "/data/bucket"),
        ("gs://team/runs/", "digits", "gs://team/runs/digits"),
        ("s3://team", "", "s3://team"),
    ],
)
def test_log_folder_local_bucket_is_a_path_and_remote_is_a_url(bucket: str, job: str, expected: str) -> None:
    assert log_folder(bucket, job) == expected


def test_serve_tensorboard_of_a_stack_that_is_not_up_names_make_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STACK", "gke-tpu")
    with pytest.raises(StackNotFound, match="stack gke-tpu is not up; run `make up STACK=gke-tpu`"):
        serve_tensorboard(lambda: pytest.fail("must not install TensorBoard for this stack"))


def test_serve_tensorboard_of_an_unknown_job_names_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = {**STACK_OUTPUTS, "bucket_url": "file:///b", "jobs": ["digits", "other"]}
    monkeypatch.setattr("commands.monitor.cluster.outputs", lambda _stack: outputs)
    monkeypatch.setenv("JOB", "digitz")
    monkeypatch.setenv("STACK", "local")
    with pytest.raises(StackNotFound, match="digitz: the stack has no such job; name one of digits, other"):
        serve_tensorboard()


def test_unknown_stack_lists_the_stacks_of_the_folder() -> None:
    check_settings_file("gke-tpu")
    with pytest.raises(UnknownStack, match=r"Pulumi\.never-made\.yaml: .* has the stacks: .*gke-tpu.*; name one"):
        check_settings_file("never-made")


def test_port_in_use_is_an_error_with_a_remedy() -> None:
    with socket.create_server(("localhost", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(CommandError, match=f"PORT={port}: cannot be used .*; name a free port"):
            check_port(port)


def test_serve_tensorboard_returns_the_status_of_a_failed_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    outputs = {**STACK_OUTPUTS, "bucket_url": "file:///b"}
    monkeypatch.setattr("commands.monitor.cluster.outputs", lambda _stack: outputs)
    monkeypatch.setenv("STACK", "local")
    monkeypatch.setenv("JOB", "")
    assert serve_tensorboard(lambda: 7) == 7


def test_serve_tensorboard_of_a_job_shows_the_bucket_folder_of_its_run_record(monkeypatch: pytest.MonkeyPatch) -> None:
    records = {"digits": {"bucket_prefix": "digits-2"}}
    outputs = {**STACK_OUTPUTS, "bucket_url": "gs://b", "run_records": records}
    monkeypatch.setattr("commands.monitor.cluster.outputs", lambda _stack: outputs)
    commands = list[list[str]]()
    monkeypatch.setattr(profile, "run_server", commands.append)
    monkeypatch.setenv("STACK", "gke-tpu")
    monkeypatch.setenv("JOB", "digits")
    serve_tensorboard()
    assert "--logdir=gs://b/digits-2" in commands[0]


def test_serve_tensorboard_of_a_bucket_in_a_volume_of_an_existing_cluster_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outputs = {**STACK_OUTPUTS, "bucket_url": "file:///bucket"}
    monkeypatch.setattr("commands.monitor.cluster.outputs", lambda _stack: outputs)
    monkeypatch.setattr(profile, "load_file", lambda _file: SimpleNamespace(cloud=SimpleNamespace(nodes_here=0)))
    monkeypatch.setenv("JOB", "")
    with pytest.raises(ProfileError, match="file:///bucket is a volume in the cluster"):
        serve_tensorboard(lambda: pytest.fail("must not install TensorBoard for this bucket"))
