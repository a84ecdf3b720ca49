"""`make logs` and `make status` on a real cluster: jobs that run, wait, fail, restart or are deleted."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from commands import follow as follow_module
from commands.follow import Follower, follow
from commands.job_results import report_finished
from commands.monitor.cluster import NO_KUEUE, Cluster, StackOutputs, Unreachable
from commands.monitor.screen import Screen
from commands.status import print_snapshot, take_snapshot
from infra.local import leftovers
from infra.local.settings import ClusterSettings
from infra.naming import QUEUE_LABEL
from stack.config import parse
from tests.commands.conftest import Apply, job
from tests.local.conftest import wait_for
from tests.local.test_cluster import processes_called
from tests.unit.stack_settings import JOB, PLATFORM

pytestmark = pytest.mark.cluster

TRAIN_SCRIPT = """
echo "start rank=$JOB_COMPLETION_INDEX/2 host=$JOB_COMPLETION_INDEX"
for i in 1 2 3 4 5 6 7 8; do
  echo "train epoch=1 step=$i/8 loss=0.$i rank=$JOB_COMPLETION_INDEX/2"
  /usr/bin/sleep 0.5
done
echo "done test_accuracy=97.93 best_accuracy=98.01 rank=$JOB_COMPLETION_INDEX/2"
"""

FOLLOW_PROGRAM = """
import sys
from commands.follow import follow
from commands.monitor.cluster import StackOutputs
from commands.monitor.screen import Screen
found = StackOutputs(kubeconfig_path=sys.argv[1], namespace="default", jobs=("left",))
sys.exit(follow(found, found.jobs, Screen(sys.stdout)))
"""


def outputs_of(kubeconfig: str, *jobs: str) -> StackOutputs:
    """Return the outputs of a stack with these jobs."""
    return StackOutputs(kubeconfig_path=kubeconfig, namespace="default", jobs=jobs)


def run(cluster: Cluster, *names: str) -> tuple[int, str]:
    """Follow the jobs until the follower ends. Return its exit status and the output."""
    out = io.StringIO()
    status = Follower(cluster, names, Screen(out)).run()
    return status, out.getvalue()


def test_follow_prints_every_line_of_both_ranks_and_the_summary(local: ClusterSettings, apply: Apply) -> None:
    apply(job("both", TRAIN_SCRIPT, hosts=2))
    out = io.StringIO()
    assert follow(outputs_of(str(local.kubeconfig), "both"), ["both"], Screen(out)) == 0
    lines = out.getvalue().splitlines()
    for rank in (0, 1):
        steps = [line for line in lines if line.startswith(f"both/{rank} | train")]
        assert [line.split("step=")[1][0] for line in steps] == list("12345678")
    assert lines[-1].startswith("both: complete after ")
    assert lines[-1].endswith("test accuracy 97.93 % (best 98.01 %); restarts 0")


def test_follow_of_a_finished_job_prints_its_log_again(cluster: Cluster, apply: Apply) -> None:
    apply(job("again", "echo 'train step=1'"))
    assert run(cluster, "again")[0] == 0
    status, text = run(cluster, "again")
    assert status == 0
    assert text.count("train step=1") == 1


def test_log_of_twenty_megabytes_has_its_first_line(cluster: Cluster, apply: Apply) -> None:
    # The kubelet checks the sizes of logs every 10 s.
    apply(job("long-log", "echo first; yes $(printf %0999d 0) | head -n 20000; sleep 15; echo last; sleep 600"))

    def log(**options: int) -> list[str]:
        return [line for pod in cluster.pods(["long-log"]) for line in cluster.log(pod, **options)]

    wait_for("the job prints its last line", lambda: log(tail_lines=1) == ["last"])
    assert log()[0] == "first"


def test_follow_with_a_killed_api_server_loses_no_line(
    cluster: Cluster, apply: Apply, local: ClusterSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_module, "SILENT_SECONDS", 0.0)
    apply(job("killed", TRAIN_SCRIPT))
    out = io.StringIO()
    results: list[int] = []
    thread = threading.Thread(
        target=lambda: results.append(Follower(cluster, ["killed"], Screen(out)).run()), daemon=True
    )
    thread.start()
    wait_for("the first step is shown", lambda: "step=2/8" in out.getvalue())
    for pid in processes_called(local, "kube-apiserver"):
        os.kill(pid, signal.SIGKILL)
    thread.join(120)
    assert results == [0]
    assert [line.split("step=")[1][0] for line in out.getvalue().splitlines() if "train" in line] == list("12345678")


def test_follow_with_a_killed_node_reports_its_job_failed(
    cluster: Cluster, apply: Apply, local: ClusterSettings
) -> None:
    apply(job("node-killed", "echo 'train step=1'; exec /usr/bin/sleep 600"))
    out = io.StringIO()
    thread = threading.Thread(target=Follower(cluster, ["node-killed"], Screen(out)).run, daemon=True)
    thread.start()
    wait_for("a step is shown", lambda: "step=1" in out.getvalue())
    (pod,) = cluster.pods(["node-killed"])
    process = leftovers.node_process(local.folder, local.node_names.index(pod.node))
    assert process is not None
    os.kill(process, signal.SIGKILL)
    wait_for("the job's end is shown", lambda: "node-killed: failed" in out.getvalue())


def test_follow_of_a_deleted_namespace_stops_and_names_make_up(
    apply: Apply, kubectl: Callable[..., str], local: ClusterSettings
) -> None:
    apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "team"}})
    # The pod is killed before the job is deleted. Without retries, the job would fail first.
    document = job("cut-short", "exec /usr/bin/sleep 600", backoffLimit=6)
    document["metadata"]["namespace"] = "team"
    apply(document)
    out = io.StringIO()
    with ThreadPoolExecutor(1) as threads:
        status = threads.submit(Follower(Cluster(str(local.kubeconfig), "team"), ["cut-short"], Screen(out)).run)
        wait_for("the pod runs", lambda: "cut-short/0 running" in out.getvalue())
        kubectl("delete", "namespace", "team", "--wait=false")
        assert status.result() == 1
    last = out.getvalue().splitlines()[-1]
    assert last == (
        "no longer following: job cut-short was deleted, and its namespace team with it; `make up` creates it again"
    )


def test_report_finished_of_a_job_that_ended_before_up_prints_no_log(
    cluster: Cluster, apply: Apply, capsys: pytest.CaptureFixture[str]
) -> None:
    before = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    apply(job("over", "echo 'train step=1 loss=2.5'; exit 3"))
    wait_for("the job has ended", lambda: cluster.jobs(["over"])["over"].is_over)
    record = {"bucket_prefix": "over", "checkpoints": "checkpoints/over"}
    outputs = {"bucket_url": "file:///bucket", "run_records": {"over": record}}
    config = parse({"platform": PLATFORM, "jobs": [{**JOB, "name": "over"}]})
    assert report_finished(cluster, config, outputs, ["over"], before) == {}
    assert report_finished(cluster, config, outputs, ["over"], "9999") == {"over": "failed"}
    text = capsys.readouterr().out
    assert text.startswith("over: failed after ")
    assert "; loss 2.5; " in text
    assert "before this command" in text
    assert "exit code 3: the script's own code" in text
    assert "train step=1" not in text


def test_follow_of_a_failing_job_reports_restarts_and_exit_code(cluster: Cluster, apply: Apply) -> None:
    apply(job("fails", "echo attempt; echo 'trainer: no space left'; exit 74", backoffLimit=1))
    status, text = run(cluster, "fails")
    assert status == 1
    assert text.count("\nattempt") == 2
    assert "(restart 1)" in text
    assert "fails/0 failed on follow-" in text
    assert "exit code 74: the script's own code" in text
    summary = text[text.index("fails: failed after") :]
    assert "restarts 1" in summary
    assert "trainer: no space left" in summary
    assert "`make logs`" in summary


def test_queued_job_without_kueue_says_that_kueue_is_missing(cluster: Cluster, apply: Apply) -> None:
    queued = job("queued", suspend=True)
    queued["metadata"]["labels"] = {QUEUE_LABEL: "research"}
    apply(queued)
    wait_for("the job is queued", lambda: cluster.jobs(["queued"])["queued"].state == "queued")
    assert cluster.jobs(["queued"])["queued"].reason == f"waits in queue research: {NO_KUEUE}"


def test_follow_of_a_job_out_of_memory_reports_oomkilled(cluster: Cluster, apply: Apply) -> None:
    document = job("memory", "exec /usr/bin/tail /dev/zero")
    document["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"memory": "40Mi"}
    apply(document)
    status, text = run(cluster, "memory")
    assert status == 1
    assert "OOMKilled" in text


def test_follow_of_a_rank_killed_in_its_pod_names_the_memory_limit(cluster: Cluster, apply: Apply) -> None:
    document = job("in-place", "echo 'restart number=1 counted=1/3 failed_rank=0 exit_code=-9'")
    document["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"] = {"memory": "40Mi"}
    apply(document)
    _, text = run(cluster, "in-place")
    assert "in-place: restarted after rank 0 ended with exit code -9: ended by SIGKILL: the container reached" in text
    assert "raise `resources.memory` of job in-place above 40Mi" in text


def test_follow_of_an_unschedulable_job_says_why_and_stops_when_it_is_deleted(
    cluster: Cluster, apply: Apply, kubectl: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_module, "ABSENT_SECONDS", 2.0)
    apply(job("large", cpu="64"))
    out = io.StringIO()
    why = "large/0 pending: Unschedulable: 0/2 nodes are available: 2 Insufficient cpu"

    def delete() -> None:
        try:
            wait_for("the reason is shown", lambda: why in out.getvalue())
        finally:
            kubectl("delete", "job", "large", "--wait=true")

    with ThreadPoolExecutor(1) as threads:
        deleted = threads.submit(delete)
        assert Follower(cluster, ["large"], Screen(out)).run() == 1
        deleted.result()
    assert "no longer following: job large was deleted and is still absent (for 2 s); `make up" in out.getvalue()


def test_follow_of_a_missing_image_gives_up(cluster: Cluster, apply: Apply, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_module, "STUCK_SECONDS", 12.0)
    apply(job("imageless", image="trainyard.local/absent:1"))
    status, text = run(cluster, "imageless")
    assert status == 1
    assert "trainyard.local/absent:1" in text
    assert text.count("imageless/0 pending") <= 4, text


def test_follow_of_pods_rejected_by_pod_security_says_why(
    apply: Apply, local: ClusterSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_module, "STUCK_SECONDS", 2.0)
    apply(
        {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "strict", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
        }
    )
    document = job("rejected", "true")
    document["metadata"]["namespace"] = "strict"
    apply(document)
    status, text = run(Cluster(str(local.kubeconfig), "strict"), "rejected")
    assert status == 1
    assert "violates PodSecurity" in text


def test_follow_of_a_deleted_pod_continues_with_its_replacement(
    cluster: Cluster, apply: Apply, kubectl: Callable[..., str]
) -> None:
    script = "echo 'train step=1/2'; [ $AGAIN ] || exec /usr/bin/sleep 600; echo 'train step=2/2'"
    document = job("replaced", script, backoffLimit=1)
    (container,) = document["spec"]["template"]["spec"]["containers"]
    container["envFrom"] = [{"configMapRef": {"name": "again", "optional": True}}]
    apply(document)
    out = io.StringIO()
    results: list[int] = []
    thread = threading.Thread(
        target=lambda: results.append(Follower(cluster, ["replaced"], Screen(out)).run()), daemon=True
    )
    thread.start()
    wait_for("a step is shown", lambda: "step=1/2" in out.getvalue())
    (first,) = cluster.pods(["replaced"])
    kubectl("create", "configmap", "again", "--from-literal=AGAIN=yes")
    kubectl("delete", "pod", first.name, "--wait=false")
    thread.join(120)
    assert results == [0]
    assert out.getvalue().count("step=1/2") == 2
    assert out.getvalue().count("step=2/2") == 1


def test_follow_stopped_by_ctrl_c_leaves_the_job_running(
    local: ClusterSettings, cluster: Cluster, apply: Apply
) -> None:
    apply(job("left"))
    words = [sys.executable, "-c", FOLLOW_PROGRAM, str(local.kubeconfig)]
    environment = {**os.environ, "STACK": "other"}
    with subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if "left/0 running" in line:
                process.send_signal(signal.SIGINT)
                break
        rest = process.stdout.read()
    assert process.returncode == 130, rest
    assert rest.endswith(
        "stopped following; job left continues; `make logs STACK=other` follows it again, "
        "`make down STACK=other` ends it and removes the stack\n"
    )
    # The job's controller may notice the running pod later than the follower does.
    wait_for("the job runs", lambda: cluster.jobs(["left"])["left"].state == "running")


def test_status_of_three_jobs_shows_nodes_and_every_job(cluster: Cluster, apply: Apply) -> None:
    apply(job("table", "echo 'train epoch=1 step=5/9 loss=0.5 rate=10 global_step=5'; exec /usr/bin/sleep 600"))
    apply(job("wide", cpu="64"))
    wait_for("the pod runs", lambda: any(pod.state == "running" for pod in cluster.pods(["table"])))
    wait_for("the pod has a log", lambda: bool(cluster.log(cluster.pods(["table"])[0])))
    wait_for("the other pod has a reason", lambda: any(pod.reason for pod in cluster.pods(["wide"])))
    out = io.StringIO()
    print_snapshot(take_snapshot(cluster, ("table", "wide", "none")), out)
    lines = out.getvalue().splitlines()
    assert lines[:3] == ["nodes: 2 of 2 ready", "  follow-0 ready", "  follow-1 ready"]
    rows = {line.split()[0]: line for line in lines[4:] if line}
    assert "5/9 of epoch 1" in rows["table"]
    assert "Insufficient cpu" in rows["wide"]
    assert "absent" in rows["none"]


def test_follow_without_a_kubeconfig_fails_at_once(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="is missing"):
        Cluster(str(tmp_path / "none"), "default")
    out = io.StringIO()
    assert follow(outputs_of(str(tmp_path / "none"), "x"), ["x"], Screen(out)) == 1
    assert "make up" in out.getvalue()


def test_follow_of_an_unreachable_cluster_gives_up(
    local: ClusterSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow_module, "UNREACHABLE_SECONDS", 4.0)
    config = tmp_path / "config"
    config.write_text(local.kubeconfig.read_text(encoding="utf-8").replace(f":{local.port}", ":9"), encoding="utf-8")
    status, text = run(Cluster(str(config), "default"), "x")
    assert status == 1
    assert "does not answer" in text
