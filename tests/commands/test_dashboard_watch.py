"""Sources and watchers of the dashboard: jobs, logs, metrics files and outputs of a stack."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from commands.bucket import Bucket
from commands.dashboard import server, watch
from commands.dashboard.document import STATES, document
from commands.dashboard.server import Dashboard, Hub
from commands.dashboard.watch import JobFeed, Source, StackGone, StackWatcher, sources
from commands.monitor.cluster import Forbidden, StackOutputs, Unreachable
from commands.monitor.job_state import JobState
from commands.monitor.pod_state import Object, PodState
from commands.stack_files import StateFiles
from infra.local.settings import ClusterSettings
from tests.commands.dashboard_state import EVENTS, START_TIME, event, job_of, node, observed, pod, stamp, train

OUTPUTS: dict[str, Any] = {
    "kubeconfig_path": "/nowhere/keys/admin.kubeconfig",
    "namespace": "training",
    "jobs": ["digits"],
    "run_records": {"digits": {"usd_per_hour": 2.0, "bucket_prefix": "digits"}},
    "bucket_url": "gs://bucket",
}


class FakeCluster:
    """Cluster with jobs of two hosts. The logs of the hosts have events."""

    def __init__(self) -> None:
        self.log_lines = [
            (stamp(1), "start device=cpu rank=0/2"),
            (stamp(2), "train epoch=2 step=5/10 loss=0.5 rank=0/2 global_step=15"),
        ]
        self.problem: Exception | None = None
        self.is_gone = self.forbids_nodes = False
        self.state, self.uid = "running", "uid"
        self.requests: list[int | None] = []

    def jobs(self, names: tuple[str, ...]) -> dict[str, JobState]:
        if self.problem:
            raise self.problem
        if self.is_gone:
            return {name: JobState(name=name, kind="", state="absent") for name in names}
        job = JobState(name="", kind="jobset", state=self.state, hosts=2)
        return {name: replace(job, name=name, uid=f"{self.uid}-{name}") for name in names}

    def pods(self, _names: tuple[str, ...]) -> list[PodState]:
        return [pod(index, uid=f"{self.uid}-{index}", owner=f"{self.uid}-digits") for index in range(2)]

    def nodes(self) -> list[Object]:
        if self.forbids_nodes:
            raise Forbidden("not allowed")
        return [node(0), node(1)]

    def events(self, *, only_warnings: bool) -> list[Object]:
        return [{"time": stamp(1), "object": "Pod/a", "reason": "Failed", "message": "text"}] if only_warnings else []

    def warnings(self, _uid: str) -> list[str]:
        return []

    def namespace_is_gone(self) -> bool:
        return self.is_gone

    def connect(self) -> None:
        """Do nothing. The real cluster reads its kubeconfig again."""

    def stamped_log(self, _pod: PodState, since_seconds: int | None) -> list[tuple[str, str]]:
        self.requests.append(since_seconds)
        return self.log_lines

    def log(self, found: PodState, _lines: int) -> list[str]:
        return [f"train step=5/10 rate=100.0 rank={found.index}/2"]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """Return a cluster that all stacks of the test use."""
    found = FakeCluster()
    monkeypatch.setattr(StackOutputs, "cluster", lambda _self: found)
    monkeypatch.setattr(watch, "platform_price", lambda _source: 4.0)
    return found


def test_watcher_reads_logs_if_the_bucket_is_not_on_this_machine(cluster: FakeCluster) -> None:
    watcher = StackWatcher(Source(stack="dev", outputs=OUTPUTS))
    for _ in range(2):
        job = job_of(document(watcher.observe()))
    assert job["charts"][0]["lines"][0]["points"] == [15, 0.5]
    assert job["steps"] == [5, 5]
    assert cluster.requests[0] is None
    assert cluster.requests[1] is not None
    assert watcher.log("digits-1-x7k2p") == ["train step=5/10 rate=100.0 rank=1/2"]
    with pytest.raises(KeyError):
        watcher.log("kube-system-pod")


def test_watcher_with_newer_outputs_shows_added_and_removed_jobs(cluster: FakeCluster) -> None:
    watcher = StackWatcher(Source(stack="dev", outputs=OUTPUTS))
    assert cluster.requests == []
    names: list[list[str]] = []
    for jobs in (["digits"], ["digits", "nightly"], ["nightly"]):
        records = {name: {"usd_per_hour": 2.0, "bucket_prefix": name} for name in jobs}
        watcher.renew(Source(stack="dev", outputs={**OUTPUTS, "jobs": jobs, "run_records": records}))
        found = document(watcher.observe())
        names.append([job["name"] for job in found["jobs"]])
        assert bool(found["jobs"][0]["charts"]) == ("digits" in jobs)
    assert names == [["digits"], ["digits", "nightly"], ["nightly"]]
    # The watcher kept the curves of `digits`, so later observations read only the newest lines of the log.
    assert cluster.requests[0] is None
    assert None not in cluster.requests[1:]


@pytest.mark.usefixtures("cluster")
def test_dashboard_shows_the_jobs_that_up_adds_to_a_stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(watch, "stack_environment", lambda: {"PULUMI_BACKEND_URL": f"file://{tmp_path}"})
    monkeypatch.setattr(server, "REFRESH_SECONDS", 0.05)
    hub = Hub()
    hub.join()
    dashboard, sent = Dashboard(hub), dict[str, str]()
    records = {name: {"bucket_prefix": name} for name in ("digits", "nightly")}

    def sends_jobs(names: list[str]) -> bool:
        """Return True once the dashboard sends a document with these jobs."""
        for _ in range(100):
            documents = [json.loads(text.partition("data: ")[2]) for text in hub.news(sent)[0]]
            if names in [[job["name"] for job in each.get("jobs", [])] for each in documents]:
                return True
        return False

    try:
        for jobs in (["digits"], ["digits", "nightly"], ["nightly"]):
            write_state(tmp_path, "dev", {**OUTPUTS, "jobs": jobs, "run_records": records})
            dashboard.update(sources("dev", only=True))
            assert sends_jobs(jobs), jobs
    finally:
        hub.end("the test has ended")


def test_sources_read_a_state_once_for_each_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "stack_environment", lambda: {"PULUMI_BACKEND_URL": f"file://{tmp_path}"})
    read: list[str] = []
    outputs = StateFiles.outputs

    def counted_outputs(files: StateFiles) -> dict[str, Any]:
        read.append(files.stack)
        return outputs(files)

    monkeypatch.setattr(StateFiles, "outputs", counted_outputs)
    for count, jobs in ((1, ["digits"]), (2, ["digits", "nightly"])):
        write_state(tmp_path, "dev", {**OUTPUTS, "jobs": jobs})
        for _ in range(3):
            assert [each.outputs["jobs"] for each in sources("dev", only=True)] == [jobs]
        assert len(read) == count


def test_watcher_without_permission_for_nodes_shows_the_rest(cluster: FakeCluster) -> None:
    cluster.forbids_nodes = True
    found = document(StackWatcher(Source(stack="dev", outputs=OUTPUTS)).observe())
    assert "not allowed" in found["nodes_problem"]
    assert found["jobs"][0]["state"] == "running"


def test_watcher_of_a_deleted_namespace_or_cluster_says_that_the_stack_is_gone(
    cluster: FakeCluster, tmp_path: Path
) -> None:
    watcher = StackWatcher(Source(stack="dev", outputs=OUTPUTS))
    cluster.problem = Unreachable("no answer")
    with pytest.raises(Unreachable):
        watcher.observe()
    cluster.problem, cluster.is_gone = None, True
    with pytest.raises(StackGone, match="namespace training was deleted"):
        watcher.observe()
    (tmp_path / "uid").write_text("{}", encoding="utf-8")
    local = StackWatcher(Source(stack="local", outputs={**OUTPUTS, "kubeconfig_path": f"{tmp_path}/keys/k"}))
    local.check()
    (tmp_path / "uid").unlink()
    cluster.problem = Unreachable("no answer")
    with pytest.raises(StackGone, match="its cluster was removed"):
        local.observe()


def job_started(seconds: float, **changes: Any) -> JobState:
    """Return the running job `digits`. Its newest start was some seconds after START_TIME."""
    started = JobState(name="digits", kind="jobset", state="running", started=stamp(seconds), created=stamp(0))
    return replace(started, **changes)


def run_times(feed: JobFeed) -> dict[str, Any]:
    """Return the times of a feed's run, as the dashboard shows them 600 seconds after START_TIME."""
    now = job_of(document(observed(metrics={"digits": feed.metrics()}, time=START_TIME + 600)))
    return {key: now[key] for key in ("seconds", "since", "possible_stops")}


def write_lines(path: Path, events: list[dict[str, Any]]) -> None:
    """Append events to a file of metrics."""
    with path.open("a", encoding="utf-8") as opened:
        opened.write("".join(f"{json.dumps(each)}\n" for each in events))


def test_feed_that_begins_after_a_resume_has_the_times_of_an_earlier_feed(tmp_path: Path) -> None:
    early, late, file = JobFeed(tmp_path), JobFeed(tmp_path), tmp_path / "rank-0.jsonl"
    write_lines(file, [event("start", 40), *(train(step, 50 + step) for step in range(100))])
    early.set_start(job_started(0), [])
    early.read_files(1)
    write_lines(file, [event("start", 430), event("resume", 431, step=99), train(100, 440), train(101, 500)])
    for feed in (early, late):
        feed.set_start(job_started(400), [])
        feed.read_files(1)
    assert run_times(late) == run_times(early)
    assert run_times(late)["seconds"]["waiting"] == 70
    assert run_times(late)["possible_stops"] == 0


def test_feed_of_a_file_counts_since_the_start_of_the_job_if_the_first_pod_was_replaced(tmp_path: Path) -> None:
    feed = JobFeed(tmp_path)
    write_lines(tmp_path / "rank-0.jsonl", [event("start", 40), train(1, 50), event("start", 320), train(2, 330)])
    feed.set_start(job_started(0), [pod(0, created=stamp(300))])
    feed.read_files(1)
    assert run_times(feed)["since"] is None
    assert run_times(feed)["seconds"]["waiting"] == 40
    assert run_times(feed)["seconds"]["lost"] == 270


def test_feed_counts_pauses_of_unknown_cause_before_the_newest_start(tmp_path: Path) -> None:
    early, late, file = JobFeed(tmp_path), JobFeed(tmp_path), tmp_path / "rank-0.jsonl"
    for begun, first in ((0, 0), (200, 20), (400, 40)):
        write_lines(file, [event("start", begun + 40), *(train(first + step, begun + 50 + step) for step in range(20))])
        early.set_start(job_started(begun), [])
        early.read_files(1)
    late.set_start(job_started(400), [])
    late.read_files(1)
    assert [run_times(feed)["possible_stops"] for feed in (early, late)] == [0, 1]


def test_feed_of_logs_begins_with_the_oldest_pod_if_earlier_logs_are_gone(cluster: FakeCluster) -> None:
    replacement = pod(0, uid="second", created=stamp(300))
    cluster.log_lines = [(stamp(320), "start ranks=2"), (stamp(330), "train step=5/10 loss=0.5")]
    late, early = JobFeed(None), JobFeed(None)
    late.set_start(job_started(0), [replacement])
    late.read_log(cluster, replacement)  # type: ignore[arg-type]  # a fake with logs only
    assert run_times(late)["since"] == START_TIME + 300
    assert run_times(late)["seconds"]["waiting"] == 20
    first = pod(0, created=stamp(5))
    early.set_start(job_started(0), [first])
    cluster.log_lines = [(stamp(20), "start ranks=2"), (stamp(30), "train step=4/10 loss=0.5")]
    early.read_log(cluster, first)  # type: ignore[arg-type]  # a fake with logs only
    early.set_start(job_started(0), [replacement])
    assert run_times(early)["since"] is None
    assert run_times(early)["seconds"]["waiting"] == 20


@pytest.mark.parametrize(("queue", "since"), [("", START_TIME + 300), ("batch", None)])
def test_feed_of_logs_of_a_resumed_job_begins_with_its_newest_start_unless_it_has_a_queue(
    cluster: FakeCluster, queue: str, since: float | None
) -> None:
    cluster.log_lines = [(stamp(320), "start ranks=2"), (stamp(330), "train step=5/10 loss=0.5")]
    feed, first = JobFeed(None), pod(0, created=stamp(302))
    feed.set_start(job_started(300, is_resumed=True, queue=queue), [first])
    feed.read_log(cluster, first)  # type: ignore[arg-type]  # a fake with logs only
    assert run_times(feed)["since"] == since
    assert run_times(feed)["seconds"]["waiting"] == 20


def test_feed_of_logs_contains_reported_stragglers(cluster: FakeCluster) -> None:
    cluster.log_lines = [
        (stamp(20), "start ranks=4 rank=0/4"),
        (stamp(30), "straggler slow_rank=3 slower=1.9000 rank=0/4 host=digits-0 time=10:00:30"),
    ]
    feed = JobFeed(None)
    feed.read_log(cluster, pod(0))  # type: ignore[arg-type]  # a fake with logs only
    assert [(each["slow_rank"], each["slower"]) for each in feed.metrics().events] == [(3, 1.9)]


def test_feed_replaces_the_log_with_the_metrics_files_once_they_exist(cluster: FakeCluster, tmp_path: Path) -> None:
    feed = JobFeed(tmp_path)
    feed.set_start(job_started(0), [])
    feed.read_files(1)
    feed.read_log(cluster, pod(0))  # type: ignore[arg-type]  # a fake with logs only
    assert not feed.has_files
    assert feed.metrics().curves.points("train", "loss") == [(15, 0.5)]
    (tmp_path / "rank-0.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in EVENTS), encoding="utf-8")
    cluster.log_lines = [(stamp(9), "restart number=1 failed_rank=1 exit_code=1"), (stamp(9.5), "train step=7 loss=3")]
    feed.read_files(1)
    feed.read_log(cluster, pod(0))  # type: ignore[arg-type]  # a fake with logs only
    found = feed.metrics()
    assert (15, 0.5) not in found.curves.points("train", "loss")
    assert [each["event"] for each in found.events].count("restart") == 1
    assert found.share_read == 1.0
    assert found.times.seconds_by_cause()["waiting"] == 40


def test_watcher_shows_the_curves_of_a_metrics_file_without_a_pod_of_rank_0(
    cluster: FakeCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.state = "failed"
    monkeypatch.setattr(cluster, "pods", lambda _names: [pod(1, state="failed")])
    monkeypatch.setattr(StackWatcher, "_metrics_folder", lambda _self, _job: tmp_path)
    write_lines(tmp_path / "rank-0.jsonl", EVENTS)
    job = job_of(document(StackWatcher(Source(stack="dev", outputs=OUTPUTS)).observe()))
    assert [STATES[each] for each in job["hosts"]["states"]] == ["none", "failed"]
    assert job["charts"][0]["title"] == "Loss"


def write_state(folder: Path, stack: str, outputs: dict[str, Any]) -> None:
    """Write the state of a stack with these outputs to the folder of a backend."""
    path = folder / ".pulumi" / "stacks" / "trainyard" / f"{stack}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    resources = [{"type": "pulumi:pulumi:Stack", "outputs": outputs}]
    path.write_text(json.dumps({"checkpoint": {"latest": {"resources": resources}}}), encoding="utf-8")


def test_outputs_of_a_state_exclude_secrets(tmp_path: Path) -> None:
    secret = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "ciphertext": "x"}
    write_state(tmp_path, "dev", {**OUTPUTS, "kubeconfig": secret})
    write_state(tmp_path, "empty", {})
    found = {each.stack: each.outputs() for each in StateFiles.all_in(tmp_path)}
    assert found == {"dev": OUTPUTS, "empty": {}}
    assert StateFiles(tmp_path, "trainyard", "missing").outputs() == {}


def test_sources_are_the_deployed_stacks_with_the_named_stack_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clusters = tmp_path / "trainyard" / "clusters"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(watch, "stack_environment", lambda: {"PULUMI_BACKEND_URL": f"file://{tmp_path}/own"})
    for name in ("a", "dev"):
        write_state(tmp_path / "own", name, OUTPUTS)
    write_state(tmp_path / "own", "down", {})
    write_state(tmp_path / "own", "removed", {**OUTPUTS, "kubeconfig_path": f"{clusters}/removed-1/keys/k"})
    assert [each.key for each in sources("dev", only=False)] == ["dev", "a"]
    assert [each.key for each in sources("dev", only=True)] == ["dev"]
    assert sources("other", only=True) == []


def test_sources_have_local_stacks_of_other_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(watch, "stack_environment", lambda: {"PULUMI_BACKEND_URL": f"file://{tmp_path}/own"})
    settings = ClusterSettings(owner=str(tmp_path / "project"), stack="local")
    settings.folder.mkdir(parents=True)
    (settings.folder / "uid").write_text("1", encoding="utf-8")
    settings.save()
    outputs = {**OUTPUTS, "kubeconfig_path": str(settings.kubeconfig)}
    write_state(tmp_path / "project" / ".trainyard" / "pulumi", "local", outputs)
    assert [each.key for each in sources("local", only=False)] == [f"local@{tmp_path}/project"]


def test_watcher_of_a_recreated_job_has_only_the_log_of_its_new_hosts(cluster: FakeCluster) -> None:
    watcher = StackWatcher(Source(stack="dev", outputs=OUTPUTS))
    assert job_of(document(watcher.observe()))["charts"][0]["lines"][0]["points"] == [15, 0.5]
    cluster.uid = "uid-again"
    cluster.log_lines = [(stamp(21), "start device=cpu rank=0/2"), (stamp(22), "train step=2 loss=0.9 rank=0/2")]
    job = job_of(document(watcher.observe()))
    assert job["charts"][0]["lines"][0]["points"] == [2, 0.9]
    assert job["spans"][0][0] == START_TIME + 21


def test_feed_of_a_fresh_run_has_only_its_own_events_and_the_time_of_its_start(tmp_path: Path) -> None:
    bucket = Bucket(url=f"file://{tmp_path}", is_cluster_local=True)
    folder = tmp_path / "digits" / "metrics"
    for events in (EVENTS, [event("start", 1000), train(3, 1005), train(5, 1007)]):
        bucket.put_curves_aside("digits")
        folder.mkdir(parents=True)
        text = "".join(f"{json.dumps(each)}\n" for each in events)
        (folder / "rank-0.jsonl").write_text(text, encoding="utf-8")
    feed = JobFeed(folder)
    feed.read_files(4)
    found = observed(metrics={"digits": feed.metrics()})
    job = job_of(document(found))
    assert job["spans"][0][0] == START_TIME + 1000
    assert "lost" not in job["seconds"]
    assert job["steps"] == [5, None, None, None]
    assert job["fresh"].startswith("The job started from the beginning at ")
    assert job_of(document(observed()))["fresh"] == ""


def test_feed_of_a_completed_script_has_the_last_step_of_its_log(cluster: FakeCluster) -> None:
    cluster.log_lines = [(stamp(1), "train step=5/10 loss=0.5"), (stamp(2), "train step=10/10 loss=0.25")]
    feed, first = JobFeed(None), pod(0, state="succeeded")
    feed.set_start(job_started(0), [first])
    feed.read_log(cluster, first)  # type: ignore[arg-type]  # a fake with logs only
    assert feed.metrics().latest[0]["loss"] == 0.25


def test_sources_of_a_remote_backend_are_the_newest_outputs_of_the_named_stack(monkeypatch: pytest.MonkeyPatch) -> None:
    requested: list[str] = []

    def fetch(stack: str, *_names: str) -> dict[str, Any]:
        requested.append(stack)
        return OUTPUTS

    monkeypatch.setattr(watch, "stack_environment", lambda: {"PULUMI_BACKEND_URL": "gs://states"})
    monkeypatch.setattr(watch, "outputs_with", fetch)
    for count in (1, 2):
        assert [each.outputs for each in sources("dev", only=False)] == [OUTPUTS]
        assert requested == ["dev"] * count
