"""Observe stacks for the dashboard: find the stacks that are up, and read their clusters and metrics."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from commands.bucket import EARLIER_FOLDER, OUTPUTS, Bucket, fresh_start
from commands.dashboard.document import CURVE_KEYS, JobMetrics, Observation
from commands.dashboard.metrics import Curves, EventFile, RankFiles
from commands.environment import PROJECT, stack_environment
from commands.interrupts import CommandError
from commands.monitor.cluster import (
    Cluster,
    Forbidden,
    LocalCluster,
    StackOutputs,
    Unreachable,
    is_removed,
    outputs_with,
)
from commands.monitor.job_state import JobState
from commands.monitor.logs import since_seconds
from commands.monitor.pod_state import WORKER, Object, PodState, latest_pods, time_of
from commands.report import event_of_line
from commands.run_times import RunTimes
from commands.stack_files import StateFiles, backend_folder
from commands.status import TAIL_LINES, read_notes
from infra.local.lifecycle import saved_settings
from infra.local.settings import clusters_folder
from stack.config import load_file

SLOW_SECONDS = 10.0
"""Seconds between two queries of nodes and warnings, whose lists are long or change rarely."""
MAX_LOGS = 64
"""Maximum number of a job's logs whose last lines one refresh reads, if its metrics are not on this machine."""
MAX_NOTES = 8
"""Maximum number of a job's waiting hosts whose warnings one refresh queries."""
LOG_THREADS = 8
"""Number of threads that read logs at the same time."""
NO_STAMP = "1970-01-01T00:00:00Z"
"""Time of lines whose time does not matter."""
LOG_LINES = 2000
"""Maximum number of lines that the page shows of a pod's log."""
REPLACEMENT_SECONDS = 30.0
"""Seconds after a job's start. If rank 0's oldest pod was created later, it counts as the replacement of another."""
MAX_STATES = 256
"""Maximum number of state versions whose outputs the dashboard caches."""
EVENT_NAMES = frozenset({"checkpoint", "resume", "restart", "straggler", "done"})
"""Names of the events that the page lists with their times."""
MAX_KEPT_EVENTS = 500
"""Maximum number of these events of a job that the dashboard keeps."""


class StackGone(CommandError):
    """A watched stack no longer exists."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Stack that is up, with its outputs."""

    stack: str
    folder: str = ""
    """Folder of its settings; empty for this project."""
    outputs: Mapping[str, Any] = field(compare=False)

    @property
    def key(self) -> str:
        """Name that is unique among all stacks of the dashboard."""
        return f"{self.stack}@{self.folder}" if self.folder else self.stack

    @property
    def title(self) -> str:
        """Name for users."""
        return f"{self.stack} of {self.folder}" if self.folder else self.stack


def state_folder() -> Path | None:
    """Return the folder with the stacks' states; None if a remote backend stores them."""
    return backend_folder(stack_environment()["PULUMI_BACKEND_URL"], PROJECT)


def sources(stack: str, *, only: bool) -> list[Source]:
    """Return the stacks that are up: `stack` first, then the project's, then the local ones of other projects.

    With `only`, or with a remote backend, return only `stack`. Raises StackNotFound if `stack` of a remote backend is
    not up.
    """
    folder = state_folder()
    if folder is None:
        return [Source(stack=stack, outputs=outputs_with(stack, *OUTPUTS))]
    found = list(_in_folder(folder, ""))
    if not only:
        found += _of_other_projects()
    found = [each for each in found if not only or each.stack == stack]
    return sorted(found, key=lambda each: (each.folder != "" or each.stack != stack, each.folder, each.stack))


def _in_folder(folder: Path, project: str) -> Iterable[Source]:
    for files in StateFiles.all_in(folder):
        outputs = _outputs(files, files.version)
        if set(OUTPUTS) <= outputs.keys() and not is_removed(str(outputs["kubeconfig_path"])):
            yield Source(stack=files.stack, folder=project, outputs=outputs)


@lru_cache(maxsize=MAX_STATES)
def _outputs(files: StateFiles, _version: tuple[int, int, int]) -> Mapping[str, Any]:
    """Return the outputs of a stack. Read each version of its state once."""
    return files.outputs()


def _of_other_projects() -> Iterable[Source]:
    """Yield stacks of this user's other projects whose clusters run on this machine."""
    for folder in sorted(clusters_folder().glob("*/")):
        settings = saved_settings(folder)
        if settings is None or settings.folder != folder or settings.owner in ("", str(PROJECT)):
            continue
        backend = Path(settings.owner) / ".trainyard" / "pulumi"
        yield from (each for each in _in_folder(backend, settings.owner) if each.stack == settings.stack)


def platform_price(source: Source) -> float | None:
    """Return the platform's price in US dollars an hour at the maximum number of nodes; None if it is unknown."""
    if source.folder:
        return None
    try:
        found = load_file(PROJECT / f"Pulumi.{source.stack}.yaml").cloud.cost_estimate()
    except (ValueError, OSError):
        return None  # The settings file may be invalid or missing now.
    return round(found.total.amount, 2) if found.lines else None


class JobFeed:
    """Metrics of one job. Each refresh continues where the last one stopped."""

    def __init__(self, folder: Path | None) -> None:
        """Create a feed that has read nothing yet.

        `folder` has the files with metrics; None if they are not on this machine.
        """
        self.folder = folder
        self._file = EventFile(folder / "rank-0.jsonl") if folder else None
        self._ranks = RankFiles(folder) if folder else None
        earlier = folder.with_name(EARLIER_FOLDER) if folder else None
        self._fresh_start = fresh_start([each.name for each in earlier.glob("*")]) if earlier else ""
        self._stamps: dict[str, str] = {}
        self._read_to_end: set[str] = set()
        self._latest: dict[int, Mapping[str, Any]] = {}
        self._started: float | None = None
        self._created: float | None = None
        self._oldest_log = ""
        self._since: float | None = None
        self._is_from_file = False
        self._reset()

    def _reset(self) -> None:
        self._curves, self._times = Curves(CURVE_KEYS), RunTimes(self._started)
        self._times.created = self._created
        self._events: deque[Mapping[str, Any]] = deque(maxlen=MAX_KEPT_EVENTS)

    @property
    def has_files(self) -> bool:
        """True if metrics were read from the job's files. The feed then ignores most lines of its log."""
        return self._file is not None and self._file.offset > 0

    @property
    def since(self) -> float | None:
        """Time at which the known logs of rank 0 begin; None if all are known."""
        return None if self.has_files else self._since

    def set_start(self, job: JobState, pods: Sequence[PodState]) -> None:
        """Set the times at which the job was created and started. Call it before reading.

        `pods` are the existing pods of rank 0, oldest first. If an earlier pod was already deleted, its log is unknown.
        The known times then begin at the creation of the oldest pod. After a stop, they begin when the job was resumed.
        """
        self._started, self._created = time_of(job.started), time_of(job.created)
        if pods and not self._oldest_log:
            self._oldest_log = pods[0].created
            begun = time_of(self._oldest_log)
            if begun is not None and self._started is not None:
                if begun - self._started > REPLACEMENT_SECONDS:
                    self._since = begun
                elif job.is_resumed and not job.queue:
                    self._since = self._started
        is_late = self.since is not None and not self._times.starts
        self._times.job_started = self.since if is_late else self._started
        self._times.created = None if is_late else self._created

    def add(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Add events of rank 0."""
        self._curves.add(events)
        for event in events:
            self._times.add(event)
            if event["event"] in EVENT_NAMES:
                self._events.append(event)

    def read_files(self, ranks: int) -> None:
        """Read the new events of rank 0 and the last event of the other ranks."""
        if self._file is None or self._ranks is None:
            return
        for events in self._file.read():
            if not events or not self._is_from_file:
                self._reset()  # Drop the data of the replaced file (an empty list) or of the log.
                self._is_from_file = True
            self.add(events)
        self._ranks.update(ranks)

    def read_log(self, cluster: Cluster, pod: PodState) -> None:
        """Read the new lines of rank 0's host. If the metrics come from files, add only `restart` events."""
        if pod.uid in self._read_to_end:
            return
        last = self._stamps.get(pod.uid, "")
        for stamp, text in cluster.stamped_log(pod, since_seconds(last)):
            if stamp <= last:
                continue
            self._stamps[pod.uid] = stamp
            event = event_of_line(stamp, text)
            if event is None or event.get("rank", 0) != 0:
                continue
            if event["event"] == "train":
                self._latest[0] = event
            if not self.has_files:
                self.add([event])
            elif event["event"] == "restart":
                self._events.append(event)
        if pod.is_over:
            self._read_to_end.add(pod.uid)

    def read_tails(self, lines: Iterable[tuple[str, str]]) -> None:
        """Keep the last `train` event of each rank from the last lines of a host's log."""
        for stamp, text in lines:
            event = event_of_line(stamp, text)
            if event is not None and event["event"] == "train":
                self._latest[int(event.get("rank", 0))] = event

    def metrics(self) -> JobMetrics:
        """Return the metrics so far."""
        file = self._file
        return JobMetrics(
            curves=self._curves,
            times=self._times,
            latest=self._ranks.latest if self._ranks and self._ranks.latest else self._latest,
            events=list(self._events),
            fresh_start=self._fresh_start,
            since=self.since,
            share_read=file.offset / file.size if file and file.size else 1.0,
        )


class StackWatcher:
    """Observer of one stack."""

    def __init__(self, source: Source) -> None:
        self._newest = source
        self._feeds: dict[str, JobFeed] = {}
        self._use(source)
        self._nodes: list[Object] = []
        self._nodes_problem = ""
        self._warnings: list[Object] = []
        self._notes: dict[str, str] = {}
        self._pods: dict[str, PodState] = {}

    def _use(self, source: Source) -> None:
        """Use the outputs of `source`. Keep the metrics of the jobs whose folder stays the same."""
        self._outputs = StackOutputs.of(source.stack, source.outputs)
        self.source = source
        self._local = LocalCluster.of_kubeconfig(self._outputs.kubeconfig_path)
        self.is_local = self._local is not None
        self._bucket = Bucket.of(source.outputs, is_cluster_local=self.is_local)
        self._cluster: Cluster | None = None  # A new client also queries the kinds that `up` has installed since.
        self._price = platform_price(source)
        self._slow_read = 0.0
        folders = {self._metrics_folder(name) for name in self._outputs.jobs}
        self._feeds = {uid: feed for uid, feed in self._feeds.items() if feed.folder in folders}

    def renew(self, source: Source) -> None:
        """Use newer outputs of the stack from the next observation on. Another thread may call it."""
        self._newest = source

    def check(self) -> None:
        """Raise StackGone if the stack has a local cluster and this cluster was removed."""
        if self._local is not None and self._local.is_removed():
            raise StackGone(f"stack {self.source.title} is gone: its cluster was removed")

    def observe(self) -> Observation:
        """Return the state of the stack. Raises Unreachable, or StackGone if the stack no longer exists."""
        self.check()
        if (newest := self._newest).outputs != self.source.outputs:
            self._use(newest)
        try:
            return self._observe(self.cluster())
        except Unreachable:
            self.check()
            if self._cluster is not None:
                with suppress(Unreachable):  # The kubeconfig changes when a cluster starts with new keys.
                    self._cluster.connect()
            raise

    def cluster(self) -> Cluster:
        """Return the client of the stack's cluster. Raises Unreachable if its kubeconfig cannot be used."""
        if self._cluster is None:
            self._cluster = self._outputs.cluster()
        return self._cluster

    def log(self, pod: str) -> list[str]:
        """Return the last lines of the log of a pod of the stack's jobs. Raises KeyError for another pod."""
        return self.cluster().log(self._pods[pod], LOG_LINES)

    def _observe(self, cluster: Cluster) -> Observation:
        names = self._outputs.jobs
        jobs, pods = cluster.jobs(names), cluster.pods(names) if names else []
        if all(job.state == "absent" for job in jobs.values()) and cluster.namespace_is_gone():
            raise StackGone(f"stack {self.source.title} is gone: its namespace {self._outputs.namespace} was deleted")
        self._pods = {pod.name: pod for pod in pods}
        self._read_slow(cluster, jobs, pods)
        # A recreated job has its own feed, because `rerun --fresh` moves the curves of earlier runs.
        uids = {job.uid for job in jobs.values()}
        self._feeds = {uid: feed for uid, feed in self._feeds.items() if uid in uids}
        return Observation(
            stack=self.source.stack,
            folder=self.source.folder,
            namespace=self._outputs.namespace,
            time=time.time(),
            nodes=self._nodes,
            nodes_problem=self._nodes_problem,
            jobs=jobs,
            pods=pods,
            metrics={job.name: self._metrics(cluster, job, pods) for job in jobs.values() if job.uid},
            records=self.source.outputs["run_records"],
            notes=self._notes,
            warnings=self._warnings,
            usd_per_hour=self._price,
        )

    def _read_slow(self, cluster: Cluster, jobs: Mapping[str, JobState], pods: Sequence[PodState]) -> None:
        """Query nodes, warnings and reasons for waiting. Skip this if the last query is recent and no node is new."""
        known = {node["metadata"]["name"] for node in self._nodes}
        is_complete = bool(self._nodes_problem) or all(
            pod.node in known for pod in pods if pod.node and not pod.is_over
        )
        if self._slow_read and time.monotonic() - self._slow_read < SLOW_SECONDS and is_complete:
            return
        self._slow_read = time.monotonic()
        try:
            self._nodes, self._nodes_problem = cluster.nodes(), ""
        except Forbidden as error:
            self._nodes_problem = f"you have no permission to list the nodes: {error}"
        with suppress(Forbidden):
            self._warnings = cluster.events(only_warnings=True)
        self._notes = {}
        for job in jobs.values():
            current = latest_pods(pod for pod in pods if pod.owner == job.uid)
            waiting = [pod for pod in current if pod.state in ("pending", "creating")]
            with suppress(Forbidden):
                self._notes |= read_notes(cluster, job, waiting[:MAX_NOTES] or current)

    def _metrics(self, cluster: Cluster, job: JobState, pods: Sequence[PodState]) -> JobMetrics:
        own = [pod for pod in pods if pod.owner == job.uid]
        current = latest_pods(own)
        feed = self._feeds.get(job.uid)
        if feed is None:
            feed = self._feeds[job.uid] = JobFeed(self._metrics_folder(job.name))
        first = sorted((pod for pod in own if pod.index == 0 and pod.has_log), key=lambda pod: pod.created)
        feed.set_start(job, first)
        processes = max((pod.processes for pod in current if pod.role == WORKER), default=1)
        feed.read_files(job.hosts * processes)
        with suppress(Unreachable):  # Ignore a node that does not answer. The API server has just answered.
            for pod in first:
                feed.read_log(cluster, pod)
        if not feed.has_files:
            self._read_tails(cluster, feed, [pod for pod in current if pod.has_log and not pod.is_over])
        return feed.metrics()

    def _read_tails(self, cluster: Cluster, feed: JobFeed, pods: Sequence[PodState]) -> None:
        def tail(pod: PodState) -> list[tuple[str, str]]:
            try:
                return [(NO_STAMP, text) for text in cluster.log(pod, TAIL_LINES)]
            except Unreachable:
                return []

        with ThreadPoolExecutor(LOG_THREADS) as threads:
            for lines in threads.map(tail, pods[:MAX_LOGS]):
                feed.read_tails(lines)

    def _metrics_folder(self, job: str) -> Path | None:
        """Return the folder of a job's metrics; None if the bucket is not a folder of this machine."""
        if not self._bucket.is_cluster_local or self._bucket.problem or self._bucket.scheme != "file":
            return None
        return Path(self._bucket.location(f"{self.source.outputs['run_records'][job]['bucket_prefix']}/metrics"))
