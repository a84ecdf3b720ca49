"""Follower with a fake cluster and clock: quiet hosts, jobs without pods, stopped jobs, results, unknown names."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from commands import follow as follow_module
from commands.follow import Follower, FollowError
from commands.monitor.cluster import Cluster, LocalCluster, StackNotFound, StackOutputs, Unreachable
from commands.monitor.job_state import JobState
from commands.monitor.pod_state import RETRYABLE_OFFSET, PodState
from commands.monitor.screen import Detail, Screen
from infra.local.settings import clusters_folder
from infra.make_command import COMMAND_VARIABLE
from tests.commands.test_screen import FIRST, SECOND
from trainer.exit_codes import DATA_ERROR, PREEMPTED, STORAGE_ERROR

JOB = JobState(name="ok", kind="indexed-job", state="running", hosts=2, started="2026-01-01T00:00:00Z", uid="job-uid")
HOSTS = [
    PodState(**{**each.__dict__, "owner": JOB.uid, "state": "running", "node": f"local-{each.index}"})
    for each in (FIRST, SECOND)
]


@dataclass
class FakeCluster:
    """Cluster with one job. Its logs are empty, because tests pass lines to the follower."""

    job: JobState = JOB
    hosts: list[PodState] = field(default_factory=lambda: list(HOSTS))
    events: list[str] = field(default_factory=list)
    kubeconfig_path: str = "/nowhere/keys/kubeconfig"
    namespace: str = "training"

    def jobs(self, _names: Sequence[str]) -> dict[str, JobState]:
        return {self.job.name: self.job}

    def pods(self, _names: Sequence[str]) -> list[PodState]:
        return list(self.hosts)

    def nodes(self) -> list[Any]:
        return []

    def warnings(self, _uid: str) -> list[str]:
        return self.events

    def log(self, _pod: PodState) -> list[str]:
        return []

    def follow_log(self, *_: object) -> Iterator[tuple[str, str]]:
        return iter(())


@dataclass
class Followed:
    """Follower with its cluster, output and clock."""

    cluster: FakeCluster
    follower: Follower
    out: io.StringIO
    now: float = 1000.0

    def poll(self, seconds: float = 0.0) -> list[str]:
        """Advance the clock and query the cluster. Return the new lines of the screen."""
        self.now += seconds
        return self._new_lines(lambda: self.follower._poll(self.now))

    def print(self, host: int, text: str) -> list[str]:
        """Pass a line of a host's log to the follower. Return the new lines of the screen."""
        return self._new_lines(lambda: self.follower._on_line(HOSTS[host], text))

    def _new_lines(self, step: Callable[[], object]) -> list[str]:
        before = len(self.out.getvalue())
        step()
        return self.out.getvalue()[before:].splitlines()


@pytest.fixture
def followed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Followed]:
    """Yield a follower that has already polled both running hosts."""
    monkeypatch.delenv("STACK", raising=False)
    monkeypatch.delenv(COMMAND_VARIABLE, raising=False)
    out, cluster = io.StringIO(), FakeCluster()
    follower = Follower(
        cast(Cluster, cluster), ["ok"], Screen(out, detail=Detail.READABLE), epochs={"ok": 8}, quiet_seconds=120.0
    )
    found = Followed(cluster, follower, out)
    clock = SimpleNamespace(**{name: getattr(time, name) for name in ("time", "strftime", "gmtime", "localtime")})
    clock.monotonic = lambda: found.now
    monkeypatch.setattr(follow_module, "time", clock)
    found.poll()
    yield found
    follower._streams.stop()


def test_quiet_host_is_reported_once_with_the_command_for_its_log(followed: Followed) -> None:
    followed.print(0, "start rank=0/2")
    followed.print(1, "start rank=1/2")
    assert followed.poll(119) == []
    followed.print(0, "train epoch=1 step=1/9 loss=1 rank=0/2")
    (line,) = followed.poll(2)
    assert line == "ok/1 on local-1: no output for 2 min 01 s; see `make logs JOB=ok RANK=1`"
    followed.print(0, "train epoch=1 step=2/9 loss=1 rank=0/2")
    assert followed.poll(60) == []
    assert followed.print(1, "start rank=1/2") == ["ok/1 prints again"]


def test_quiet_host_under_trainyard_names_its_command(followed: Followed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(COMMAND_VARIABLE, "trainyard")
    followed.print(1, "start rank=1/2")
    assert any(line.endswith("see `trainyard logs ok --rank 1`") for line in followed.poll(121))


def test_hosts_that_never_print_are_reported_if_no_host_prints(followed: Followed) -> None:
    assert len(followed.poll(121)) == 2
    followed.print(0, "epoch 1")
    followed.cluster.hosts = [HOSTS[1]]
    assert followed.poll(10) == []


def test_host_that_never_prints_is_not_reported_while_another_prints(followed: Followed) -> None:
    for _ in range(5):
        followed.print(0, "epoch 1")
        assert followed.poll(60) == []


def test_host_that_never_prints_is_not_reported_after_the_printing_host_succeeded(followed: Followed) -> None:
    followed.print(0, "epoch 1")
    followed.poll()
    followed.cluster.hosts = [replace(HOSTS[0], state="succeeded", exit_code=0), HOSTS[1]]
    assert [line for _ in range(4) for line in followed.poll(60) if "no output" in line] == []


def test_pause_is_reported_only_beyond_three_times_the_longest_earlier_pause(followed: Followed) -> None:
    for _ in range(2):
        followed.print(0, "train step=1")
        followed.now += 100
    followed.print(0, "train step=2")
    assert followed.poll(290) == []
    assert len(followed.poll(20)) == 1


def test_job_whose_pods_are_gone_is_reported_after_a_while(followed: Followed) -> None:
    followed.cluster.hosts = []
    assert followed.poll(1) == []
    (line,) = followed.poll(11)
    assert line == "the pods of ok are gone; `make status` shows the job and its events"
    assert followed.poll(1) == []


def test_time_without_pods_starts_again_after_a_job_had_pods(followed: Followed) -> None:
    followed.cluster.hosts = []
    followed.poll(1)
    followed.cluster.hosts = list(HOSTS)
    followed.poll(5)
    followed.cluster.hosts = []
    assert followed.poll(1) == []
    assert followed.poll(6) == []
    (line,) = followed.poll(5)
    assert line.startswith("the pods of ok are gone; ")


def test_stopped_job_is_reported_with_its_checkpoint_and_not_as_failed(followed: Followed) -> None:
    followed.cluster.job = replace(JOB, state="suspended")
    followed.cluster.hosts = [replace(host, state="ending", reason="Terminating") for host in HOSTS]
    stopping, *_ = followed.poll(1)
    assert stopping == "ok is stopping; its hosts can save a checkpoint first"
    followed.print(0, "checkpoint step=120 path=file:///bucket/checkpoints/ok/step-000000120 seconds=0.1 rank=0/2")
    codes = (PREEMPTED, PREEMPTED + RETRYABLE_OFFSET)
    followed.cluster.hosts = [
        replace(host, state="failed", reason="Error", exit_code=code) for host, code in zip(HOSTS, codes, strict=True)
    ]
    assert followed.poll(1) == ["ok is stopped; step 120 is saved; `make resume JOB=ok` continues it"]
    followed.cluster.hosts = []
    assert followed.poll(60) == []
    followed.cluster.job, followed.cluster.hosts = JOB, [replace(HOSTS[0], uid="again")]
    assert followed.poll(1) == ["ok/0 running on local-0"]


def test_restarts_of_a_resumed_job_count_from_its_last_start(followed: Followed) -> None:
    followed.print(0, "restart number=2 counted=2/3 failed_rank=1 exit_code=-9")
    assert followed.follower.results == {"ok": "restarts 2"}
    followed.cluster.job = replace(JOB, state="suspended")
    followed.poll(1)
    followed.cluster.hosts = []
    followed.poll(1)
    followed.cluster.job = replace(JOB, is_resumed=True)
    followed.cluster.hosts = [replace(host, uid=f"again {host.uid}") for host in HOSTS]
    followed.poll(1)
    assert followed.follower.results == {}
    followed.print(0, "restart number=1 counted=1/3 failed_rank=1 exit_code=-9")
    assert followed.follower.results == {"ok": "restarts 1 since its last start"}


def test_host_of_a_stopped_job_that_fails_is_reported(followed: Followed) -> None:
    followed.cluster.job = replace(JOB, state="suspended")
    followed.cluster.hosts = [replace(HOSTS[0], state="failed", reason="Error", exit_code=STORAGE_ERROR)]
    stopped, failed = followed.poll(1)
    assert stopped == "ok is stopped; `make resume JOB=ok` continues it"
    assert failed.startswith("ok/0 failed on local-0: exit code 74: ")


def test_follower_results_have_the_accuracy_and_restarts_of_each_job(followed: Followed) -> None:
    assert followed.follower.results == {}
    followed.print(0, "done test_accuracy=97.93 best_accuracy=98.01 rank=0/2")
    assert followed.follower.results == {"ok": "test accuracy 97.93 % (best 98.01 %)"}
    followed.print(0, "restart number=2 counted=2/3 failed_rank=1 exit_code=-9")
    assert followed.follower.results == {"ok": "test accuracy 97.93 % (best 98.01 %); restarts 2"}


def test_check_rank_of_a_rank_that_no_host_has_names_the_ranks() -> None:
    jobs = {"ok": JOB}
    with pytest.raises(StackNotFound, match="RANK=99: no host has this rank; the ranks are 0 to 1"):
        follow_module.check_rank(99, HOSTS, jobs)
    follow_module.check_rank(1, HOSTS, jobs)
    follow_module.check_rank(99, [], jobs)


@pytest.mark.parametrize(
    ("rank", "message"),
    [
        (0, "RANK=0: Kubernetes deleted the pod of this rank when the job failed"),
        (9, "RANK=9: no host has this rank; the ranks are 0 to 1"),
    ],
)
def test_check_rank_distinguishes_a_deleted_pod_from_a_rank_that_never_existed(rank: int, message: str) -> None:
    with pytest.raises(StackNotFound, match=message):
        follow_module.check_rank(rank, HOSTS[1:], {"ok": replace(JOB, state="failed")})


@pytest.mark.parametrize(
    ("state", "hosts", "deleted"),
    [("failed", HOSTS[1:], [0]), ("running", HOSTS[1:], []), ("complete", HOSTS[1:], []), ("failed", [], [])],
)
def test_only_a_failed_job_with_pods_has_deleted_ranks(state: str, hosts: list[PodState], deleted: list[int]) -> None:
    assert follow_module.deleted_ranks(replace(JOB, state=state), hosts) == deleted


def test_logs_of_a_failed_job_name_the_rank_whose_output_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    class WithLogs(FakeCluster):
        def log(self, _pod: PodState) -> list[str]:
            return ["KeyError: 17"]

    out = io.StringIO()
    cluster = cast(Cluster, WithLogs(job=replace(JOB, state="failed"), hosts=HOSTS[1:]))
    follow_module.print_logs(cluster, ["ok"], Screen(out))
    shown = out.getvalue() + capsys.readouterr().err
    assert "ok/1 | KeyError: 17" in shown
    assert "ok/0: Kubernetes deleted the pod of this rank when the job failed, and its output with it" in shown


@pytest.mark.parametrize(("program", "example"), [("", "`make logs JOB=ok`"), ("trainyard", "`trainyard logs ok`")])
def test_logs_of_an_unknown_job_name_the_job_as_typed(
    program: str, example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = StackOutputs(kubeconfig_path="none", namespace="training", jobs=("ok",))
    monkeypatch.setattr(follow_module, "stack_outputs", lambda: found)
    monkeypatch.setenv(COMMAND_VARIABLE, program)
    with pytest.raises(StackNotFound) as raised:
        follow_module.main("typo")
    assert str(raised.value) == f"typo: the stack has no such job; name one of ok, as in {example}"


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ("suspended", "no pods, so no logs: job ok is stopped; `make resume JOB=ok` continues it\n"),
        ("absent", "no pods, so no logs: job ok does not exist; `make up` creates it\n"),
        ("failed", "no pods, so no logs: job ok is failed: BackoffLimitExceeded; `make rerun JOB=ok` runs it again\n"),
    ],
)
def test_logs_of_a_job_without_pods_give_the_reason_on_stderr(
    state: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "BackoffLimitExceeded" if state == "failed" else ""
    cluster = cast(Cluster, FakeCluster(job=replace(JOB, state=state, reason=reason), hosts=[]))
    follow_module.print_logs(cluster, ["ok"], Screen(io.StringIO()))
    assert capsys.readouterr().err == message


def waiting_hosts(reason: str) -> list[PodState]:
    """Return hosts whose containers wait for this reason."""
    return [replace(each, state="pending", reason=reason, message="no such host") for each in HOSTS]


def test_logs_of_a_job_without_containers_give_the_reason_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    cluster = cast(Cluster, FakeCluster(hosts=waiting_hosts("ErrImagePull")))
    follow_module.print_logs(cluster, ["ok"], Screen(io.StringIO()))
    expected = "no container has started, so no logs: ok: 2 pending (ErrImagePull: no such host)\n"
    assert capsys.readouterr().err == expected


def test_missing_image_on_a_local_cluster_is_explained_once(followed: Followed) -> None:
    followed.follower._local = LocalCluster(Path("/nowhere"))
    followed.cluster.hosts = waiting_hosts("ErrImagePull")
    lines = followed.poll(1)
    followed.cluster.hosts = waiting_hosts("ImagePullBackOff")
    lines += followed.poll(1)
    explained = [line for line in lines if "platform `local` cannot pull images from a registry" in line]
    assert len(explained) == 1
    assert "the image of ok is missing" in explained[0]


def test_missing_image_on_another_cluster_has_no_advice_about_platform_local(followed: Followed) -> None:
    followed.cluster.hosts = waiting_hosts("ErrImagePull")
    assert not any("platform `local`" in line for line in followed.poll(1))


@pytest.mark.parametrize("state", ["suspended", "running"])
def test_ctrl_c_during_logs_says_what_the_job_does(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster(job=replace(JOB, state=state), hosts=[])
    original = Follower._poll
    polls: list[float] = []

    def poll_once_then_interrupt(follower: Follower, now: float) -> None:
        if polls:
            raise KeyboardInterrupt
        polls.append(now)
        original(follower, now)

    monkeypatch.setattr(Follower, "_poll", poll_once_then_interrupt)
    monkeypatch.setattr(StackOutputs, "cluster", lambda _self: cluster)
    monkeypatch.setattr(follow_module, "POLL_SECONDS", 0.0)
    out = io.StringIO()
    found = StackOutputs(kubeconfig_path="none", namespace="training", jobs=("ok",))
    assert follow_module.follow(found, ["ok"], Screen(out)) == 130
    last = out.getvalue().splitlines()[-1]
    if state == "suspended":
        assert last == "stopped following; job ok stays stopped; `make resume JOB=ok` continues it"
    else:
        assert last.startswith("stopped following; job ok continues; `make logs` follows it again")


def test_pod_that_failed_with_a_peer_that_ends_the_job_is_not_announced_as_replaced(followed: Followed) -> None:
    ended: dict[str, Any] = {
        "state": "failed",
        "reason": "Error",
        "finished": "2026-01-01T00:00:00Z",
        "has_backoff": True,
    }
    first = replace(HOSTS[0], exit_code=PREEMPTED, **ended)
    followed.cluster.hosts = [first, replace(HOSTS[1], exit_code=DATA_ERROR, fails_job=True, **ended)]
    text = "\n".join(followed.poll())
    assert "ok/0 failed on local-0" in text
    assert "ok/1 failed on local-1" in text
    assert "Kubernetes replaces" not in text
    assert text.count("Kubernetes does not replace it after this exit code") == 1
    followed.cluster.hosts = [first, HOSTS[1]]
    assert "Kubernetes replaces it at 00:00:10 UTC" in "\n".join(followed.poll())


def test_live_line_of_a_stopped_job_has_no_time_left(followed: Followed) -> None:
    for step in (1, 2):
        followed.print(0, f"train epoch=1 step={step}/9 loss=1 rank=0/2 global_step={step}/9 time=10:00:0{step}")
    assert "left" in followed.follower._live_text(JOB)
    assert followed.follower._live_text(replace(JOB, state="suspended")) == "ok  suspended"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["train step=9/9 loss=1 rank=0/2"], "job ok continues"),
        (["done test_accuracy=97 rank=0/2"], "the jobs have ended"),
    ],
)
def test_ctrl_c_says_that_the_job_continues_only_before_its_done_line(
    lines: list[str], expected: str, followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    for line in lines:
        followed.print(0, line)

    def interrupted(_self: Follower) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(Follower, "run", interrupted)
    monkeypatch.setattr(follow_module, "Follower", lambda *_args, **_options: followed.follower)
    monkeypatch.setattr(StackOutputs, "cluster", lambda _self: followed.cluster)
    outputs = StackOutputs(kubeconfig_path="/nowhere", namespace="training", jobs=("ok",))
    out = io.StringIO()
    assert follow_module.follow(outputs, ["ok"], Screen(out)) == 130
    assert f"stopped following; {expected}" in out.getvalue()


class SilentCluster(FakeCluster):
    """Cluster whose API server does not answer."""

    def jobs(self, _names: Sequence[str]) -> dict[str, JobState]:
        raise Unreachable("the API server does not answer: [Errno 111] Connection refused")

    def connect(self) -> None:
        """Do nothing, because this class needs no connection."""


def test_follower_that_starts_during_a_removal_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kubeconfig = clusters_folder() / "local-1" / "keys" / "admin.kubeconfig"
    kubeconfig.parent.mkdir(parents=True)
    kubeconfig.touch()
    cluster = cast(Cluster, SilentCluster(kubeconfig_path=str(kubeconfig)))
    follower = Follower(cluster, [JOB.name], Screen(io.StringIO()))
    with pytest.raises(FollowError, match="the stack's cluster was removed"):
        follower._poll(1000.0)
