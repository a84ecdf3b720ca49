"""`make logs` and part of `make up`: follow jobs until they end.

The screen shows the hosts' logs, the reasons for waiting and the result of each job. The follower lists jobs and pods
every second: a watch could close or become stale.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TextIO

from commands.interrupts import GOES_ON, run_command, set_closing
from commands.monitor.cluster import (
    Cluster,
    Forbidden,
    LocalCluster,
    NoKubeconfig,
    StackNotFound,
    StackOutputs,
    Unreachable,
    Untrusted,
    stack_outputs,
)
from commands.monitor.job_state import JobState
from commands.monitor.logs import LogStreams, Progress
from commands.monitor.pod_state import STUCK, PodState, latest_by_place, seconds_between, silent_since, what_to_do
from commands.monitor.screen import Screen, describe, describe_many, progress_text, restart_reason, spell, summary
from commands.stack import PulumiFailed
from infra.make_command import make_command

INTERRUPTED = 130
"""Exit status after Ctrl-C, as in shells."""
POLL_SECONDS = 1.0
DRAIN_SECONDS = 15.0
"""Seconds that the rest of the logs may take to arrive after the jobs have ended."""
ABSENT_SECONDS = 10.0
"""Seconds that a job may be absent before the follower gives up."""
STUCK_SECONDS = 120.0
"""Seconds that a host may wait for something that does not pass by itself before the follower gives up."""
UNREACHABLE_SECONDS = 300.0
"""Seconds that the API server may not answer before the follower gives up. It may be restarting."""
GONE_SECONDS = 10.0
"""Seconds before the follower gives up if the local cluster has no process or another cluster answers."""
SILENT_SECONDS = 3.0
"""Seconds without an answer of the API server before the screen reports it."""
NODES_SECONDS = 5.0
"""Seconds between two queries of the nodes."""
EVENTS_SECONDS = 5.0
"""Seconds that a host may wait without a reason before its events are queried, and between two queries."""
TAIL_LINES = 80
"""Lines kept of each host. torchrun's failure report takes about 40."""
MANY_HOSTS = 8
"""Number of hosts above which their states are counted instead of listed."""


class FollowError(RuntimeError):
    """The jobs will not end by themselves, or cannot be seen any more. The message says why and what to do."""


class Follower:
    """Follower of the named jobs of one cluster, until each has ended."""

    def __init__(self, cluster: Cluster, names: Sequence[str], screen: Screen, up: str = "") -> None:
        self._up = up or make_command("up")
        self._cluster = cluster
        self._names = list(names)
        self._screen = screen
        self._streams = LogStreams(cluster)
        self._jobs: dict[str, JobState] = {}
        self._pods: dict[str, PodState] = {}
        self._tails: dict[str, deque[str]] = {}
        self._progress: dict[str, Progress] = {}
        self._said: dict[str, str] = {}
        self._since: dict[str, float] = {}
        self._events: dict[str, tuple[float, str]] = {}
        self._local = LocalCluster.of_kubeconfig(cluster.kubeconfig_path)
        self._hosts_before: dict[str, frozenset[tuple[str, int]]] = {}
        self._nodes_at = 0.0
        self._is_disturbed = False

    def run(self) -> int:
        """Follow to the end. Return 0 if every job is complete, 1 if one failed or the follower gave up."""
        try:
            with self._screen.live():
                self._loop()
        except FollowError as error:
            self._screen.note(f"no longer following: {error}", "red")
            self._finish()
            return 1
        finally:
            self._streams.stop()
        self._finish()
        if any(job.state != "complete" for job in self._jobs.values()):
            logs, status, down = make_command("logs"), make_command("status"), make_command("down")
            self._screen.note(f"{logs} shows all of the log, {status} every host; {down} removes the stack", "")
        return 0 if all(job.state == "complete" for job in self._jobs.values()) else 1

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
                self._take(*line)

    def _take(self, pod: PodState, text: str) -> None:
        """Keep and show one line of a log."""
        self._tails.setdefault(pod.uid, deque(maxlen=TAIL_LINES)).append(text)
        event = self._progress.setdefault(pod.job, Progress()).read(text)
        ranks = sum(job.hosts for job in self._jobs.values()) * pod.processes
        self._screen.line(pod, text, ranks)
        if event is not None and event.name == "restart" and (ended := restart_reason(pod, event)):
            self._screen.note(f"{pod.job}: {ended}")

    def _poll(self, now: float) -> None:
        """Query jobs and pods, and report changes."""
        for end in self._local.program_ends() if self._local else []:
            self._screen.note(str(end))
            self._is_disturbed |= not end.node
        try:
            jobs, pods = self._cluster.jobs(self._names), self._cluster.pods(self._names)
            self._look_at_nodes(pods, now)
        except Unreachable as error:
            self._wait_for_api(error, now)
            return
        self._report_return(jobs, pods, now)
        for name, job in jobs.items():
            if job.uid and self._jobs.get(name, job).uid not in ("", job.uid):
                self._screen.note(f"job {name} was replaced: following the new one")
        self._jobs |= {name: job for name, job in jobs.items() if job.uid or not self._was_seen(name)}
        self._streams.update(pods)
        self._pods |= {pod.uid: pod for pod in pods}
        self._hosts_before = _hosts_in(("running",), jobs.values(), pods)
        for job in jobs.values():
            self._tell(job, [pod for pod in pods if pod.owner == job.uid], now)
        self._screen.now("   ".join(self._live_text(job) for job in jobs.values()))

    def _was_seen(self, name: str) -> bool:
        return name in self._jobs and bool(self._jobs[name].uid)

    def _wait_for_api(self, error: Unreachable, now: float) -> None:
        """Report an API server that does not answer. Give up if it will not come back by itself."""
        self._screen.now("waiting for the API server")
        up = self._up
        if self._local and self._local.is_removed():
            raise FollowError(
                f"the stack's cluster was removed, as {make_command('down')} does; {up} creates a new one"
            )
        if self._local and not self._local.has_processes():
            reason = "the stack's cluster has stopped: none of its processes runs any more"
            self._bear("stopped", GONE_SECONDS, now, reason, f"{up} starts it again with its data")
        else:
            self._forget("stopped")
        if isinstance(error, Untrusted):
            self._bear("untrusted", GONE_SECONDS, now, str(error), f"{up} looks for the stack's cluster again")
        if isinstance(error, Untrusted) or self._cluster.kubeconfig_has_changed():
            with suppress(Unreachable):
                self._cluster.connect()
        self._bear("unreachable", UNREACHABLE_SECONDS, now, str(error), f"{up} repairs the stack")
        if now - self._since["unreachable"] >= SILENT_SECONDS and "unreachable" not in self._said:
            since = time.strftime("%H:%M:%S", time.localtime(time.time() - (now - self._since["unreachable"])))
            hosts = "" if "stopped" in self._since else "; the job's hosts run on meanwhile"
            self._say("unreachable", f"{error} since {since}{hosts}; trying again")

    def _report_return(self, jobs: Mapping[str, JobState], pods: Sequence[PodState], now: float) -> None:
        """Report that the API server answers again, and the number of hosts that stopped meanwhile."""
        if self._is_disturbed or "unreachable" in self._said:
            outage = f" after {spell(now - self._since['unreachable'])}" if "unreachable" in self._since else ""
            self._screen.note(f"the API server answers again{outage}")
            after = _hosts_in(("running", "succeeded"), jobs.values(), pods)
            for name, hosts in self._hosts_before.items():
                lost = len(hosts - after.get(name, frozenset()))
                text = f"{lost} of its {len(hosts)} hosts stopped" if lost else "all of its hosts ran on"
                if hosts:
                    self._screen.note(f"{name}: {text} meanwhile")
        self._is_disturbed = False
        for key in ("unreachable", "stopped", "untrusted"):
            self._forget(key)

    def _look_at_nodes(self, pods: Sequence[PodState], now: float) -> None:
        """Report nodes of the jobs' hosts that stop answering, and nodes that answer again."""
        if now - self._nodes_at < NODES_SECONDS:
            return
        self._nodes_at = now
        used = {pod.node: pod for pod in latest_by_place(pods) if not pod.is_over and pod.node}
        try:
            nodes = self._cluster.nodes()
        except Forbidden:
            self._nodes_at = math.inf
            return
        for node in nodes:
            name, since = node["metadata"]["name"], silent_since(node)
            if since and name in used:
                advice = "" if self._local else f"; {what_to_do([node])}"
                self._say(f"node {name}", f"node {name} has not answered since {since}{advice}")
            elif not since and f"node {name}" in self._said:
                self._screen.note(f"node {name} answers again")
                self._forget(f"node {name}")

    def _live_text(self, job: JobState) -> str:
        seconds = seconds_between(job.started, job.finished or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        return progress_text(job, self._progress.get(job.name), seconds)

    def _tell(self, job: JobState, pods: list[PodState], now: float) -> None:
        """Report news about one job and its pods. Give up if waiting does not help."""
        if job.state == "absent":
            if not self._jobs[job.name].is_over:
                self._tell_absent(job, now)
            return
        self._forget(f"absent {job.name}")
        if job.is_over:
            return
        if job.state == "suspended":
            self._say(job.uid, f"{job.name} is suspended: nothing runs until it is resumed")
        elif job.state == "queued":
            self._say(job.uid, f"{job.name} {job.reason}")
        elif not pods:
            reason = self._warning(job.uid, now)
            self._say(job.uid, f"{job.name} has no pods yet{': ' + reason if reason else ''}")
            self._bear_stuck(job.uid, reason.partition(":")[0], now, f"{job.name}: {reason}")
        current = latest_by_place(pods)
        if len(current) > MANY_HOSTS:
            self._say(f"all {job.name}", describe_many(job.name, current))
        for pod in current:
            self._tell_pod(pod, sum(each.place == pod.place for each in pods) - 1 + pod.restarts, len(current), now)

    def _tell_absent(self, job: JobState, now: float) -> None:
        """Give up a job that does not exist: at once if its namespace is gone, else after time for a replacement."""
        why = f" ({job.reason})" if job.reason else ""
        problem = f"job {job.name} was deleted" if self._was_seen(job.name) else f"job {job.name} does not exist{why}"
        advice = f"{self._up} creates it again"
        try:
            if self._cluster.namespace_is_gone():
                raise FollowError(f"{problem}, and its namespace {self._cluster.namespace} with it; {advice}")
        except Unreachable:
            return  # The next poll reports it.
        self._bear(f"absent {job.name}", ABSENT_SECONDS, now, problem, advice)

    def _tell_pod(self, pod: PodState, earlier: int, hosts: int, now: float) -> None:
        text = describe(pod, earlier)
        if pod.state in ("pending", "creating") and not pod.reason:
            reason = self._warning(pod.uid, now)
            text += f": {reason}" if reason else ""
        # Kubernetes alternates between the failed pull and the wait for the next one. That is not news.
        known = pod.reason == "ImagePullBackOff" and "ErrImagePull" in self._said.get(pod.uid, "")
        if hosts <= MANY_HOSTS and not known:
            self._say(pod.uid, text)
        self._bear_stuck(pod.uid, pod.reason, now, text)

    def _warning(self, uid: str, now: float) -> str:
        """Return the last warning about an object that has been waiting for a while; empty if it has none."""
        asked, text = self._events.get(uid, (now, ""))
        self._events.setdefault(uid, (now, ""))
        if now - asked >= EVENTS_SECONDS:
            try:
                text = (self._cluster.warnings(uid) or [""])[-1]
            except Unreachable:
                return text  # The next poll reports it.
            self._events[uid] = (now, text)
        return text

    def _say(self, key: str, text: str) -> None:
        """Show a line unless it was the last one about `key`."""
        if self._said.get(key) != text:
            self._said[key] = text
            self._screen.note(text)

    def _bear(self, key: str, seconds: float, now: float, reason: str, advice: str) -> None:
        """Give up if `key` has lasted longer than `seconds`."""
        if now - self._since.setdefault(key, now) > seconds:
            raise FollowError(f"{reason} (for {spell(seconds)}); {advice}")

    def _bear_stuck(self, uid: str, reason: str, now: float, text: str) -> None:
        if reason in STUCK:
            advice = f"{make_command('status')} shows every host, {make_command('down')} removes the stack"
            self._bear(f"stuck {uid}", STUCK_SECONDS, now, text, advice)
        else:
            self._forget(f"stuck {uid}")

    def _forget(self, key: str) -> None:
        self._since.pop(key, None)
        self._said.pop(key, None)

    def _finish(self) -> None:
        """Show the result of each job that has ended."""
        for job in self._jobs.values():
            if not job.is_over:
                continue
            pods = [pod for pod in self._pods.values() if pod.owner == job.uid]
            tails = {uid: list(tail) for uid, tail in self._tails.items()}
            style = "bold green" if job.state == "complete" else "bold red"
            self._screen.note("", "")
            for line in summary(job, pods, self._progress.get(job.name), tails):
                self._screen.note(line, style)
                style = ""


def _hosts_in(
    states: Collection[str], jobs: Iterable[JobState], pods: Sequence[PodState]
) -> dict[str, frozenset[tuple[str, int]]]:
    """Return each job's pods in these states, each with the restart count of its container."""
    return {
        job.name: frozenset((pod.uid, pod.restarts) for pod in pods if pod.owner == job.uid and pod.state in states)
        for job in jobs
    }


def follow(
    kubeconfig_path: str,
    namespace: str,
    job_names: Sequence[str],
    out: TextIO,
    context: str | None = None,
    up: str = "",
) -> int:
    """Follow the jobs on `out` until they end. Return 0 if all are complete, 1 if one is not, 130 after Ctrl-C.

    `up` is the command that messages recommend for restoring the jobs.
    """
    found = StackOutputs(kubeconfig_path=kubeconfig_path, namespace=namespace, jobs=tuple(job_names), context=context)
    return _follow(found, found.jobs, Screen(out), up)


def _follow(found: StackOutputs, names: Sequence[str], screen: Screen, up: str = "") -> int:
    if not names:
        screen.note("the stack has no jobs: nothing to follow")
        return 0
    try:
        return Follower(_cluster(found), names, screen, up).run()
    except NoKubeconfig as error:
        screen.note(str(error), "red")
        return 1
    except Unreachable as error:
        screen.note(f"{error}; {up or make_command('up')} starts the stack", "red")
        return 1
    except KeyboardInterrupt:
        screen.note(f"stopped following; {goes_on(names)}")
        return INTERRUPTED


def goes_on(jobs: Sequence[str]) -> str:
    """Return the sentence that the jobs continue without the command that followed them."""
    which = f"job {jobs[0]} goes on" if len(jobs) == 1 else f"jobs {', '.join(jobs)} go on"
    it = "it" if len(jobs) == 1 else "them"
    return f"{which}; {make_command('logs')} follows {it} again, {make_command('down')} ends {it} and removes the stack"


def _cluster(found: StackOutputs) -> Cluster:
    return Cluster(found.kubeconfig_path, found.namespace, found.context)


def print_logs(cluster: Cluster, names: Sequence[str], screen: Screen) -> None:
    """Show the output of the jobs' pods so far."""
    pods = sorted(cluster.pods(names), key=lambda pod: (pod.job, pod.created, pod.place))
    ranks = {name: {rank for pod in pods if pod.job == name for rank in pod.ranks} for name in names}
    total = sum(map(len, ranks.values()))
    for pod in pods:
        try:
            lines = cluster.log(pod)
        except Unreachable as error:
            # The cluster has answered before, so this pod's node is the one that does not answer.
            screen.note(f"{pod.job}/{pod.label}: its log cannot be read: {error}")
            continue
        for text in lines:
            screen.line(pod, text, total)


def main() -> int:
    """`make logs`: like `follow`. With --no-follow return 0 once the logs are shown."""
    parser = argparse.ArgumentParser(prog="python -m commands.follow", description="Show the logs of the stack's jobs.")
    parser.add_argument("--job", default=os.environ.get("JOB") or None, help="only this job; by default $JOB, else all")
    parser.add_argument("--rank", type=int, help="only this rank")
    parser.add_argument("--no-follow", action="store_true", help="show what is there and end")
    options = parser.parse_args()
    set_closing(GOES_ON)
    try:
        found = stack_outputs()
        if options.job is not None and options.job not in found.jobs:
            raise StackNotFound(
                f"--job {options.job}: no such job in the stack; it has {', '.join(found.jobs) or 'none'}"
            )
        names = found.jobs if options.job is None else (options.job,)
        screen = Screen(sys.stdout, only_rank=options.rank)
        if options.no_follow:
            print_logs(_cluster(found), names, screen)
            return 0
        return _follow(found, names, screen)
    except (StackNotFound, PulumiFailed, Unreachable) as error:
        print(f"make logs: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(run_command("make logs", main))
