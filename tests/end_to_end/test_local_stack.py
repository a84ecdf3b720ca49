"""User's commands on the local stack, from `make up` to `make down`. Each test needs the result of the previous one."""

from __future__ import annotations

import json
import os
import re
import signal
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from infra.local import leftovers
from tests.end_to_end.conftest import Checkout, processes

pytestmark = [pytest.mark.sequence, pytest.mark.timeout(900)]


def test_up_trains_digits_to_97_percent(checkout: Checkout) -> None:
    printed = replace(checkout, is_verbose=False).run("make", "up", seconds=900)
    accuracy = float(re.findall(r"^result +test accuracy ([\d.]+) %", printed, flags=re.MULTILINE)[-1])
    assert accuracy >= 97.0
    assert re.search(r"^  created: .*\b1 Job\b", printed, flags=re.MULTILINE), "Pulumi's output must be a summary"
    assert "creating (" not in printed
    (log,) = (checkout.folder / ".trainyard" / "logs" / "local").glob("*-up.log")
    assert "creating (" in log.read_text(encoding="utf-8")
    assert "digits/1 | train" not in printed, "only the lines of rank 0 must be shown"
    assert printed.splitlines()[-1].split() == ["make", "down", "remove", "the", "stack"]
    (job,) = checkout.objects("jobs")
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 2
    assert [each["type"] for each in job["status"]["conditions"] if each["status"] == "True"][-1] == "Complete"


def test_up_runs_each_rank_on_its_own_node(checkout: Checkout) -> None:
    pods = sorted(checkout.objects("pods"), key=lambda pod: str(pod["metadata"]["name"]))
    assert {pod["spec"]["nodeName"] for pod in pods} == set(checkout.cluster.node_names)
    for rank, pod in enumerate(pods):
        log = checkout.kubectl("logs", pod["metadata"]["name"])
        assert f"host=digits-{rank}" in log
        assert f"rank={rank}/2" in log
        losses = [float(loss) for loss in re.findall(r"^train .*\bloss=([\d.]+)", log, flags=re.MULTILINE)]
        assert losses[-1] < losses[0] / 2


def test_up_writes_metrics_and_checkpoints_to_bucket(checkout: Checkout) -> None:
    run = checkout.cluster.bucket / "digits"
    events = [json.loads(line) for line in (run / "metrics" / "rank-0.jsonl").read_text(encoding="utf-8").splitlines()]
    assert events
    assert list((run / "tensorboard").rglob("events.out.tfevents.*"))
    assert list((checkout.cluster.bucket / "checkpoints" / "digits").iterdir())


def test_second_up_changes_nothing(checkout: Checkout) -> None:
    uids = [pod["metadata"]["uid"] for pod in checkout.objects("pods")]
    checkout.tool("pulumi", "up", "--stack", "local", "--yes", "--expect-no-changes")
    assert [pod["metadata"]["uid"] for pod in checkout.objects("pods")] == uids


def test_up_after_the_job_has_finished_shows_its_result_without_its_log(checkout: Checkout) -> None:
    printed = checkout.run("make", "up")
    assert re.search(r"^digits: complete after .*; it ended at \S+, before this command$", printed, flags=re.MULTILINE)
    assert "raise `epochs` in its `flags` and run `make up`" in printed
    assert "train epoch=" not in printed


def test_up_recreates_deleted_job(checkout: Checkout) -> None:
    (before,) = checkout.objects("jobs")
    checkout.kubectl("delete", "job", "digits")
    printed = checkout.run("make", "up")
    assert "stack local: recreating deleted jobs: digits" in printed
    (after,) = checkout.objects("jobs")
    assert after["metadata"]["uid"] != before["metadata"]["uid"]


@pytest.mark.parametrize(
    ("change", "changed_key"),
    [({"image": "example.com/other:1"}, "spec.template"), ({"hosts": 1}, "spec.completions")],
)
def test_preview_shows_only_the_edit(checkout: Checkout, change: dict[str, object], changed_key: str) -> None:
    with checkout.restored_settings():
        checkout.change(**change)
        plan = json.loads(checkout.tool("pulumi", "preview", "--stack", "local", "--json"))
    changed = {step["urn"].rpartition("::")[2]: step for step in plan["steps"] if step["op"] != "same"}
    assert set(changed) == {"digits-job"}
    assert any(key.startswith(changed_key) for key in changed["digits-job"]["detailedDiff"])


def test_up_with_invalid_setting_changes_nothing(checkout: Checkout) -> None:
    (state,) = checkout.folder.glob(".trainyard/pulumi/.pulumi/stacks/*/local.json")
    written_at = state.stat().st_mtime_ns
    with checkout.restored_settings():
        checkout.change(hosts=0)
        printed = checkout.run("make", "up", status=2)
    lines = [line for line in printed.splitlines() if not line.startswith(("make", ".venv/bin/trainyard"))]
    file, problem = lines
    assert file.endswith("Pulumi.local.yaml: 1 problem")
    assert problem.startswith("trainyard:jobs[0].hosts = 0")
    assert state.stat().st_mtime_ns == written_at


def test_killed_rank_restarts_in_place_and_resumes(checkout: Checkout) -> None:
    checkout.run("make", "down")
    checkout.change(flags={"epochs": 4})
    up = checkout.start("make", "up")
    checkpoints = checkout.cluster.bucket / "checkpoints" / "digits"
    deadline = time.monotonic() + 300
    # The trainer writes the manifest last, so a checkpoint with a manifest is complete.
    while not any(checkpoints.glob("*/checkpoint.json")):
        assert up.poll() is None, up.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.5)
    pids = rank_pids("digits-1")
    assert pids, "pod digits-1 has no training process"
    os.kill(pids[0], signal.SIGKILL)
    printed = up.communicate(timeout=600)[0]
    assert up.returncode == 0, printed
    log = checkout.kubectl("logs", "-l", "trainyard.dev/job=digits", "--tail=-1", "--prefix")
    assert re.search(r"^.*resume step=\d+", log, flags=re.MULTILINE), log[-3000:]
    assert "restart number=1 counted=1/1 failed_rank=1 exit_code=-9" in log
    assert "restarts 1" in printed
    (job,) = checkout.objects("jobs")
    assert job["status"].get("failed", 0) == 0
    assert len(checkout.objects("pods")) == 2


def rank_pids(pod: str) -> list[int]:
    """Return the process ids of the ranks in a pod. The launcher's fork server has forked them."""
    found = []
    for pid in processes():
        try:
            environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            parent = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[1]
            parent_command = Path(f"/proc/{parent}/cmdline").read_bytes()
        except OSError:
            continue
        if f"HOSTNAME={pod}".encode() in environment and b"multiprocessing.forkserver" in parent_command:
            found.append(pid)
    return found


def test_down_removes_everything_and_can_be_repeated(checkout: Checkout) -> None:
    kubeconfig = yaml.safe_load(checkout.cluster.kubeconfig.read_text(encoding="utf-8"))
    server = kubeconfig["clusters"][0]["cluster"]["server"]
    assert "nothing is left" in checkout.run("make", "down")
    assert leftovers.find(checkout.cluster.folder, checkout.cluster.cgroup) == []
    assert list((checkout.folder / ".trainyard" / "provider").iterdir()) == []
    temporary_files = Path(tempfile.gettempdir()).glob("kubeconfig*")
    assert [file for file in temporary_files if server in file.read_text(encoding="utf-8")] == []
    assert "nothing to do" in checkout.run("make", "down")
