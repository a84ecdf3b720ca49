"""`make logs` and part of `make up`: follow jobs until they end.

The screen shows the hosts' logs, the reasons for waiting and the result of each job. The follower lists jobs and pods
every second. It does not use a Kubernetes watch, which could close or become stale.
"""

from __future__ import annotations

import math
import sys
import time
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType

from commands.interrupts import STILL_RUNNING, ExitStatus, run_command, set_closing
from commands.monitor.cluster import (
    Cluster,
    Forbidden,
    LocalCluster,
    StackNotFound,
    StackOutputs,
    Unreachable,
    Untrusted,
    is_removed,
    job_named,
    stack_outputs,
)
from commands.monitor.job_state import JobState, why_no_pods
from commands.monitor.logs import LogStreams, Progress
from commands.monitor.pod_state import (
    STOP_CODES,
    STUCK_REASONS,
    PodState,
    image_pull_advice,
    latest_pods,
    lost_node_advice,
    seconds_between,
    silent_since,
)
from commands.monitor.screen import (
    Detail,
    JsonScreen,
    Screen,
    Training,
    describe,
    describe_many,
    format_seconds,
    live_line,
    restart_reason,
    restarts_of,
    restarts_text,
    result_text,
    state_text,
    summary,
)
from commands.pulumi_output import is_verbose
from infra.make_command import make_command, option_text

POLL_SECONDS = 1.0
DRAIN_SECONDS = 15.0
"""Seconds that the rest of the logs may take to arrive after the jobs have ended."""
ABSENT_SECONDS = 10.0
"""Seconds that a job may be absent before the follower gives up."""
STUCK_SECONDS = 120.0
"""Seconds that a host may wait for a reason of STUCK_REASONS before the follower gives up."""
UNREACHABLE_SECONDS = 300.0
"""Seconds without an answer of the API server before the follower gives up. The server may be restarting."""
GONE_SECONDS = 10.0
"""Seconds before the follower gives up if the local cluster has no process, or if another cluster answers."""
SILENT_SECONDS = 3.0
"""Seconds without an answer of the API server before the screen reports the outage."""
NODES_SECONDS = 5.0
"""Seconds between two queries of the nodes."""
EVENTS_SECONDS = 5.0
"""Seconds that a host waits without a known reason before a query of its events. Also the time between queries."""
QUIET_SECONDS = 120.0
"""Seconds without a line from a running host before the screen reports the host as quiet."""
QUIET_FACTOR = 3
"""The screen reports a pause only if it is longer than this multiple of the host's longest earlier pause."""
NO_PODS_SECONDS = 10.0
"""Seconds without pods, after a job has had some, before the screen reports that they are gone."""
TAIL_LINES = 80
"""Number of last log lines to keep for each host. torchrun's failure report has about 40 lines."""
MANY_HOSTS = 8
"""Number of hosts above which the screen counts their states instead of listing them."""


class FollowError(RuntimeError):
    """Jobs that will not end by themselves, or cannot be queried any more. The message says why and what to do."""


@dataclass
class _Tracked:
    """Notes about one subject, such as a pod, a job, a node or the API server."""

    reported: str = ""
    """Last line that the screen has shown about the subject."""
    problem_since: float | None = None
    """Time at which the subject's problem began; None if it has no problem."""
    warning: str = ""
    """The subject's last warning event."""
    warning_read: float | None = None
    """Time of the last query of the subject's events. Before the first query: time at which it began to wait."""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    """Last lines of a pod's log."""
    last_output: float | None = None
    """Time of a pod's last line. Before the first line: time at which the pod was first seen running."""
    longest_pause: float = 0.0
    """Longest time between two of a pod's lines."""


class Follower:
    """Follower of the named jobs of one cluster, until each has ended."""

    def __init__(
        self,
        cluster: Cluster,
        names: Sequence[str],
        screen: Screen,
        up: str = "",
        *,
        epochs: Mapping[str, int] = MappingProxyType({}),
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        """Follow jobs. `up` is the command that creates them, for messages. `epochs` is job -> number of epochs."""
        self._quiet_seconds = quiet_seconds
        self._training = {name: Training(epochs=epochs.get(name, 0)) for name in names}
        self._up = up or make_command("up")
        self._cluster = cluster
        self._names = list(names)
        self._screen = screen
        self._streams = LogStreams(cluster)
        self._jobs: dict[str, JobState] = {}
        self._pods: dict[str, PodState] = {}
        self._progress: dict[str, Progress] = defaultdict(Progress)
        self._stopped: set[str] = set()
        """UIDs of pods that ran before their job was stopped. Their end does not count as a restart."""
        self._tracked: dict[str, _Tracked] = defaultdict(_Tracked)
        self._local = LocalCluster.of_kubeconfig(cluster.kubeconfig_path)
        self._nodes_read = 0.0

    def run(self) -> int:
        """Follow to the end. Return 0 if every job is complete, 1 if one failed or the follower gave up."""
        try:
            with self._screen.live():
                self._loop()
        except FollowError as error:
            self._screen.note(f"no longer following: {error}", "red")
            self._show_results()
            return 1
        finally:
            self._streams.stop()
        self._show_results()
        if all(job.state == "complete" for job in self._jobs.values()):
            return 0
        if self._screen.detail is Detail.READABLE:
            return 1  # The box at the end has the next commands.
        logs, status, down = make_command("logs"), make_command("status"), make_command("down")
        self._screen.note(f"{logs} shows all of the log, {status} every host; {down} removes the stack", "")
        return 1

    @property
    def results(self) -> dict[str, str]:
        """Job -> result of its training and number of restarts, as text. Jobs with neither are missing."""
        found = {}
        for name, job in self._jobs.items():
            progress = self._progress.get(name)
            count = restarts_of(self._pods_of(job), progress)
            words = (result_text(progress), restarts_text(job, count) if count else "")
            if text := "; ".join(filter(None, words)):
                found[name] = text
        return found

    @property
    def stopped_jobs(self) -> list[str]:
        """Names of the jobs that are stopped."""
        return [name for name, job in self._jobs.items() if job.state == "suspended"]

    @property
    def ended_jobs(self) -> list[str]:
        """Names of the jobs that have ended, or whose training has ended."""
        return [name for name, job in self._jobs.items() if job.is_over or "done" in self._progress[name].latest]

    def _loop(self) -> None:
        next_poll, ended = 0.0, None
        while True:
            now = time.monotonic()
            if now >= next_poll:
                self._poll(now)
                next_poll = time.monotonic() + POLL_SECONDS
            if self._jobs and all(job.is_over for job in self._jobs.values()):
                ended = ended or now
                if self._streams.are_over() or now - ended > DRAIN_SECONDS:
                    return
            line = self._streams.next_line(0.2 if ended else max(0.0, next_poll - time.monotonic()))
            if line is not None:
                self._on_line(*line)

    def _on_line(self, pod: PodState, text: str) -> None:
        now = time.monotonic()
        self._tracked[pod.uid].tail.append(text)
        self._record_output(pod, now)
        event = self._progress[pod.job].read(text)
        ranks = sum(job.hosts for job in self._jobs.values()) * pod.processes
        self._screen.line(pod, text, ranks)
        if event is not None and pod.job in self._training:
            self._training[pod.job].read(event, now)
        if event is not None and event.name == "restart" and (reason := restart_reason(pod, event)):
            self._screen.note(f"{pod.job}: {reason}")

    def _poll(self, now: float) -> None:
        """Query jobs and pods, and report changes."""
        try:
            jobs, pods = self._cluster.jobs(self._names), self._cluster.pods(self._names)
            self._report_nodes(pods, now)
        except Unreachable as error:
            self._wait_for_api(error, now)
            return
        self._report_api_return(now)
        for name, job in jobs.items():
            if job.uid and self._jobs.get(name, job).uid not in ("", job.uid):
                self._screen.note(f"job {name} was replaced: following the new one")
                self._training[name] = Training(epochs=self._training[name].epochs)
                self._progress.pop(name, None)
        self._jobs |= {name: job for name, job in jobs.items() if job.uid or not self._was_seen(name)}
        self._streams.update(pods)
        self._pods |= {pod.uid: pod for pod in pods}
        for job in jobs.values():
            if job.state in ("suspended", "queued"):
                # Count restarts only from the job's next start, as `status` does.
                self._stopped |= {pod.uid for pod in self._pods_of(job)}
                self._progress[job.name].latest.pop("restart", None)
            self._report_job(job, [pod for pod in pods if pod.owner == job.uid], now)
        self._screen.set_live_lines([self._live_text(job) for job in jobs.values()])

    def _pods_of(self, job: JobState) -> list[PodState]:
        """Return the pods of a job since its last start."""
        return [pod for pod in self._pods.values() if pod.owner == job.uid and pod.uid not in self._stopped]

    def _was_seen(self, name: str) -> bool:
        return name in self._jobs and bool(self._jobs[name].uid)

    def _wait_for_api(self, error: Unreachable, now: float) -> None:
        """Report an API server that does not answer. Give up if it cannot recover by itself."""
        self._screen.set_live_lines(["waiting for the API server"])
        # `_local` is None if the removal of the cluster began before this follower started.
        if is_removed(self._cluster.kubeconfig_path) or (self._local and self._local.is_removed()):
            down = make_command("down")
            raise FollowError(f"the stack's cluster was removed, for example by {down}; {self._up} creates a new one")
        if self._local and not self._local.has_processes():
            reason = "the stack's cluster has stopped: none of its processes is running"
            self._give_up_after(GONE_SECONDS, "stopped", now, reason, f"{self._up} starts it again with its data")
        else:
            self._forget("stopped")
        if isinstance(error, Untrusted):
            advice = f"{self._up} writes a new kubeconfig of a local cluster; for another cluster, log in again"
            self._give_up_after(GONE_SECONDS, "untrusted", now, str(error), advice)
        with suppress(Unreachable):
            self._cluster.connect()  # The kubeconfig changes when a cluster starts with new keys.
        advice = f"{self._up} repairs a cluster of this machine; for another cluster, check your connection to it"
        self._give_up_after(UNREACHABLE_SECONDS, "unreachable", now, str(error), advice)
        outage = self._tracked["unreachable"]
        seconds = now - (outage.problem_since or now)
        if seconds >= SILENT_SECONDS and not outage.reported:
            since = time.strftime("%H:%M:%S", time.localtime(time.time() - seconds))
            hosts = "" if "stopped" in self._tracked else "; the job's hosts keep running"
            self._report("unreachable", f"{error} (since {since}){hosts}; trying again")

    def _report_api_return(self, now: float) -> None:
        outage = self._tracked["unreachable"]
        if outage.reported:
            seconds = now - (outage.problem_since or now)
            self._screen.note(f"the API server answers again after {format_seconds(seconds)}")
        self._forget("unreachable", "stopped", "untrusted")

    def _report_nodes(self, pods: Sequence[PodState], now: float) -> None:
        """Report nodes of the jobs' hosts that stop answering, and nodes that answer again."""
        if now - self._nodes_read < NODES_SECONDS:
            return
        self._nodes_read = now
        used = {pod.node for pod in latest_pods(pods) if not pod.is_over and pod.node}
        try:
            nodes = self._cluster.nodes()
        except Forbidden:
            self._nodes_read = math.inf
            return
        for node in nodes:
            name, since = node["metadata"]["name"], silent_since(node)
            if since and name in used:
                advice = "" if self._local else f"; {lost_node_advice([node])}"
                self._report(f"node {name}", f"node {name} has not answered since {since}{advice}")
            elif not since and f"node {name}" in self._tracked:
                self._screen.note(f"node {name} answers again")
                self._forget(f"node {name}")

    def _live_text(self, job: JobState) -> str:
        training = self._training[job.name]
        if job.state == "suspended":
            return state_text(job, None)
        if training.fields and not job.is_over:
            name = job.name if job.state == "running" else f"{job.name} {job.state}"
            return live_line(name, training, self._screen.width - 1)
        seconds = seconds_between(job.started, job.finished or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        return state_text(job, seconds)

    def _report_job(self, job: JobState, pods: list[PodState], now: float) -> None:
        """Report changes of a job and of its pods. Give up if waiting does not help."""
        if job.state == "absent":
            if not self._jobs[job.name].is_over:
                self._report_absent(job, now)
            return
        self._forget(f"absent {job.name}")
        if job.is_over:
            return
        if job.state == "suspended":
            self._report_stopped(job, pods)
        elif job.state == "queued":
            self._report(job.uid, f"{job.name} {job.reason}")
        elif not pods:
            reason = self._warning(job.uid, now)
            self._report_no_pods(job, reason, now)
            self._give_up_if_stuck(job.uid, reason.partition(":")[0], now, f"{job.name}: {reason}")
        else:
            self._forget(f"pods of {job.name}")
        current = latest_pods(pods)
        if job.state in ("suspended", "queued"):
            # The stop or the queue has ended these hosts, so this is not a failure.
            current = [pod for pod in current if not (pod.is_over and pod.exit_code in STOP_CODES)]
        if len(current) > MANY_HOSTS:
            self._report(f"all {job.name}", describe_many(job.name, current))
        earlier = {pod.uid: sum(each.place == pod.place for each in pods) - 1 + pod.restarts for pod in current}
        is_job_over = any(pod.ends_job(earlier[pod.uid]) for pod in current)
        for pod in current:
            ends_with_job = is_job_over and not pod.ends_job(earlier[pod.uid])
            text = describe(pod, earlier[pod.uid], is_job_over=ends_with_job)
            self._report_pod(pod, text, now, is_shown=len(current) <= MANY_HOSTS)
        self._report_quiet_hosts(job, current, now)

    def _report_stopped(self, job: JobState, pods: Sequence[PodState]) -> None:
        """Report a stopped job, and its checkpoint once its hosts have ended."""
        if any(pod.has_log and not pod.is_over for pod in pods):
            self._report(job.uid, f"{job.name} is stopping; its hosts can save a checkpoint first")
            return
        step = self._progress[job.name].value("step", "checkpoint")
        saved = f"; step {step} is saved" if step else ""
        self._report(job.uid, f"{job.name} is stopped{saved}; {make_command('resume', JOB=job.name)} continues it")

    def _report_no_pods(self, job: JobState, reason: str, now: float) -> None:
        why = f": {reason}" if reason else ""
        if all(pod.owner != job.uid for pod in self._pods.values()):
            self._report(job.uid, f"{job.name} has no pods yet{why}")
            return
        gone = self._tracked[f"pods of {job.name}"]
        gone.problem_since = gone.problem_since or now
        if now - gone.problem_since >= NO_PODS_SECONDS:
            status = make_command("status")
            self._report(job.uid, f"the pods of {job.name} are gone{why}; {status} shows the job and its events")

    def _record_output(self, pod: PodState, now: float) -> None:
        """Record that a host has printed a line. If the host was reported as quiet, report that it prints again."""
        tracked = self._tracked[pod.uid]
        if tracked.last_output is not None:
            tracked.longest_pause = max(tracked.longest_pause, now - tracked.last_output)
        tracked.last_output = now
        if self._tracked[f"quiet {pod.uid}"].reported:
            self._forget(f"quiet {pod.uid}")
            self._screen.note(f"{pod.job}/{pod.label} prints again")

    def _report_quiet_hosts(self, job: JobState, current: Sequence[PodState], now: float) -> None:
        """Report running hosts that have stopped printing. If any host has printed, ignore hosts that never have."""
        has_printed = any(self._tracked[pod.uid].tail for pod in current)
        for pod in current:
            if pod.state != "running" or not pod.ranks:
                continue
            tracked = self._tracked[pod.uid]
            if tracked.last_output is None:
                tracked.last_output = now
            if has_printed and not tracked.tail:  # In many scripts only rank 0 prints.
                continue
            seconds = now - tracked.last_output
            if seconds < max(self._quiet_seconds, QUIET_FACTOR * tracked.longest_pause):
                continue
            if not self._tracked[f"quiet {pod.uid}"].reported:
                logs = make_command("logs", JOB=job.name, RANK=str(pod.ranks[0]))
                text = f"{job.name}/{pod.label} on {pod.node}: no output for {format_seconds(seconds)}; see {logs}"
                self._report(f"quiet {pod.uid}", text)

    def _report_absent(self, job: JobState, now: float) -> None:
        """Give up on a missing job: at once if its namespace is gone, else after ABSENT_SECONDS."""
        why = f" ({job.reason})" if job.reason else ""
        was_seen = self._was_seen(job.name)
        problem = f"job {job.name} was deleted" if was_seen else f"job {job.name} does not exist{why}"
        advice = f"{self._up} creates it again"
        try:
            if self._cluster.namespace_is_gone():
                raise FollowError(f"{problem}, and its namespace {self._cluster.namespace} with it; {advice}")
        except Unreachable:
            return  # The next poll reports the error.
        problem += " and is still absent" if was_seen else ""
        self._give_up_after(ABSENT_SECONDS, f"absent {job.name}", now, problem, advice)

    def _report_pod(self, pod: PodState, text: str, now: float, *, is_shown: bool) -> None:
        if pod.state in ("pending", "creating") and not pod.reason:
            reason = self._warning(pod.uid, now)
            text += f": {reason}" if reason else ""
        # A failed image pull and the wait for the next one alternate. Report only the pull.
        is_known = pod.reason == "ImagePullBackOff" and "ErrImagePull" in self._tracked[pod.uid].reported
        if is_shown and not is_known:
            self._report(pod.uid, text)
        if self._local and (advice := image_pull_advice([pod])):
            self._report(f"image of {pod.job}", advice)
        self._give_up_if_stuck(pod.uid, pod.reason, now, text)

    def _warning(self, uid: str, now: float) -> str:
        """Return the last warning event of a waiting object; empty in the first EVENTS_SECONDS, or if it has none."""
        tracked = self._tracked[uid]
        if tracked.warning_read is None:
            tracked.warning_read = now
        if now - tracked.warning_read >= EVENTS_SECONDS:
            with suppress(Unreachable):  # The next poll reports the error.
                tracked.warning = (self._cluster.warnings(uid) or [""])[-1]
                tracked.warning_read = now
        return tracked.warning

    def _report(self, key: str, text: str) -> None:
        """Show a line unless it was the last one about `key`."""
        if self._tracked[key].reported != text:
            self._tracked[key].reported = text
            self._screen.note(text)

    def _give_up_after(self, seconds: float, key: str, now: float, problem: str, advice: str) -> None:
        """Give up if `key` has had its problem for longer than `seconds`."""
        tracked = self._tracked[key]
        if tracked.problem_since is None:
            tracked.problem_since = now
        if now - tracked.problem_since > seconds:
            raise FollowError(f"{problem} (for {format_seconds(seconds)}); {advice}")

    def _give_up_if_stuck(self, uid: str, reason: str, now: float, text: str) -> None:
        if reason in STUCK_REASONS:
            advice = f"{make_command('status')} shows every host, {make_command('down')} removes the stack"
            self._give_up_after(STUCK_SECONDS, uid, now, text, advice)
        else:
            self._tracked[uid].problem_since = None

    def _forget(self, *keys: str) -> None:
        for key in keys:
            self._tracked.pop(key, None)

    def _show_results(self) -> None:
        for job in self._jobs.values():
            if not job.is_over:
                continue
            if job.state == "complete" and self._screen.detail is Detail.READABLE:
                continue  # The box at the end has the result.
            pods = self._pods_of(job)
            tails = {pod.uid: list(self._tracked[pod.uid].tail) for pod in pods}
            style = "bold green" if job.state == "complete" else "bold red"
            self._screen.note("", "")
            for line in summary(job, pods, self._progress.get(job.name), tails):
                self._screen.note(line, style)
                style = ""


def follow(
    found: StackOutputs,
    names: Sequence[str],
    screen: Screen,
    up: str = "",
    *,
    epochs: Mapping[str, int] = MappingProxyType({}),
    results: dict[str, str] | None = None,
) -> int:
    """Follow the jobs to their end. Return 0 if all are complete, 1 if not, 130 after Ctrl-C.

    `results` gets the result of each job, as in `Follower.results`.
    """
    if not names:
        screen.note("the stack has no jobs: nothing to follow")
        return 0
    follower: Follower | None = None
    try:
        follower = Follower(found.cluster(), names, screen, up, epochs=epochs)
        status = follower.run()
        if results is not None:
            results.update(follower.results)
        return status
    except Unreachable as error:
        screen.note(error.report(up), "red")
        return 1
    except KeyboardInterrupt:
        stopped, ended = (follower.stopped_jobs, follower.ended_jobs) if follower else ([], [])
        continuing = [name for name in names if name not in ended]
        ended_text = (
            f"the jobs have ended; {make_command('status')} shows them, {make_command('down')} removes the stack"
        )
        screen.note(f"stopped following; {still_running_notice(continuing, stopped) if continuing else ended_text}")
        return ExitStatus.INTERRUPTED


def still_running_notice(names: Sequence[str], stopped: Sequence[str] = ()) -> str:
    """Return a notice that the jobs continue without the follower; if all jobs are stopped, how to resume them."""
    jobs = [name for name in names if name not in stopped]
    if not jobs:
        resume = " and ".join(make_command("resume", JOB=name) for name in names)
        if len(names) == 1:
            return f"job {names[0]} stays stopped; {resume} continues it"
        return f"jobs {', '.join(names)} stay stopped; {resume} continue them"
    which = f"job {jobs[0]} continues" if len(jobs) == 1 else f"jobs {', '.join(jobs)} continue"
    it = "it" if len(jobs) == 1 else "them"
    return f"{which}; {make_command('logs')} follows {it} again, {make_command('down')} ends {it} and removes the stack"


_DELETED_NOTICE = "Kubernetes deleted the pod of this rank when the job failed, and its output with it"


def print_logs(cluster: Cluster, names: Sequence[str], screen: Screen) -> None:
    """Show the output of the jobs' pods so far. Report jobs without pods to stderr."""
    pods = sorted(cluster.pods(names), key=lambda pod: (pod.job, pod.created, pod.place))
    jobs = cluster.jobs(names)
    ranks = max(len({(pod.job, rank) for pod in pods for rank in pod.ranks}), sum(job.hosts for job in jobs.values()))
    started = {pod.job for pod in pods if pod.has_log}
    for pod in pods:
        try:
            lines = cluster.log(pod)
        except Unreachable as error:
            # The API server has answered before, so only this pod's node does not answer.
            screen.note(f"{pod.job}/{pod.label}: its log cannot be read: {error}")
            continue
        for text in lines:
            started.add(pod.job)
            screen.line(pod, text, ranks)
    for name in sorted({*names} - {pod.job for pod in pods}):
        print(f"no pods, so no logs: {why_no_pods(jobs[name])}", file=sys.stderr)
    for name in sorted({pod.job for pod in pods} - started):
        own = latest_pods(pod for pod in pods if pod.job == name)
        print(f"no container has started, so no logs: {describe_many(name, own)}", file=sys.stderr)
    for job in jobs.values():
        for deleted in deleted_ranks(job, pods):
            screen.note(f"{job.name}/{deleted}: {_DELETED_NOTICE}")


def deleted_ranks(job: JobState, pods: Sequence[PodState]) -> list[int]:
    """Return the ranks of a failed job whose pods are gone; an empty list if all pods are gone.

    Kubernetes deletes the running pods of a failed Job:
    https://kubernetes.io/docs/concepts/workloads/controllers/job/#job-termination-and-cleanup
    """
    own = [pod for pod in pods if pod.job == job.name and pod.ranks]
    if job.state != "failed" or not own:
        return []
    all_ranks = range(job.hosts * own[0].processes)
    return sorted({*all_ranks} - {rank for pod in own for rank in pod.ranks})


def check_rank(rank: int, pods: Sequence[PodState], jobs: Mapping[str, JobState]) -> None:
    """Raise StackNotFound if no pod has the rank. Accept every rank if there are no pods yet."""
    ranks = {each for pod in pods for each in pod.ranks}
    if not ranks or rank in ranks:
        return
    problem = option_text("RANK", str(rank))
    deleted = {each for job in jobs.values() for each in deleted_ranks(job, pods)}
    if rank in deleted:
        raise StackNotFound(f"{problem}: {_DELETED_NOTICE}")
    ranks |= deleted
    raise StackNotFound(f"{problem}: no host has this rank; the ranks are {min(ranks)} to {max(ranks)}")


def main(job: str = "", rank: int | None = None, *, no_follow: bool = False, as_json: bool = False) -> int:
    """Follow all jobs, or one of them. With `no_follow`, print the logs so far and return 0."""
    set_closing(STILL_RUNNING)
    found = stack_outputs()
    names = (job_named(found, job, "logs"),) if job else found.jobs
    if rank is not None:
        check_rank(rank, found.cluster().pods(names), found.cluster().jobs(names))
    detail = Detail.ALL if is_verbose() else Detail.LINES
    screen = JsonScreen(sys.stdout, only_rank=rank) if as_json else Screen(sys.stdout, only_rank=rank, detail=detail)
    if no_follow:
        print_logs(found.cluster(), names, screen)
        return 0
    return follow(found, names, screen)


if __name__ == "__main__":
    sys.exit(run_command("make logs", main))
