"""Follows jobs to their end: their hosts' logs, what they wait for, how they ended. `make logs`, and part of `make up`.

The jobs and pods are listed every second rather than watched: there is no watch that could close or grow stale.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import deque
from collections.abc import Sequence
from typing import TextIO

from commands.stack import PulumiFailed
from commands.watching.job_state import JobState
from commands.watching.jobs import Cluster, NoStack, StackOutputs, Unreachable, stack_outputs
from commands.watching.log_lines import Progress
from commands.watching.log_stream import LogStreams
from commands.watching.pod_state import STUCK, PodState, latest_by_place, seconds_between
from commands.watching.screen import Screen, describe, describe_many, progress_text, spell, summary

POLL_SECONDS = 1.0
DRAIN_SECONDS = 15.0
"""How long after the end of the jobs the rest of their logs may take to arrive."""
ABSENT_SECONDS = 10.0
"""How long a job may not exist before following it is given up."""
STUCK_SECONDS = 120.0
"""How long a host may wait for something that does not pass by itself before following is given up."""
UNREACHABLE_SECONDS = 300.0
"""How long the API server may not answer before following is given up; it may be restarting."""
SILENT_SECONDS = 3.0
"""How long the API server may not answer before that is said."""
EVENTS_SECONDS = 5.0
"""How long a host may wait without a reason before its events are asked, and how often."""
TAIL_LINES = 80
"""Lines of each host that are kept; torchrun's failure report takes about 40 of them."""
MANY_HOSTS = 8
"""With more hosts than that their states are counted instead of listed."""


class GivenUp(RuntimeError):
    """The jobs will not end by themselves, or cannot be seen any more; the message says why."""


class Follower:
    """Follows the named jobs of one cluster until each has ended."""

    def __init__(self, cluster: Cluster, names: Sequence[str], screen: Screen) -> None:
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

    def run(self) -> int:
        """Follow to the end; 0 when every job is complete, 1 when one failed or was given up."""
        try:
            with self._screen.live():
                self._loop()
        except GivenUp as error:
            self._screen.note(f"no longer following: {error}", "red")
            self._finish()
            return 1
        finally:
            self._streams.stop()
        self._finish()
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
        self._progress.setdefault(pod.job, Progress()).read(text)
        ranks = sum(job.hosts for job in self._jobs.values()) * pod.processes
        self._screen.line(pod, text, ranks)

    def _poll(self, now: float) -> None:
        """Ask for jobs and pods, and tell what has changed."""
        try:
            jobs, pods = self._cluster.jobs(self._names), self._cluster.pods(self._names)
        except Unreachable as error:
            self._bear("unreachable", UNREACHABLE_SECONDS, now, str(error))
            if now - self._since["unreachable"] >= SILENT_SECONDS:
                self._say("unreachable", f"{error}; trying again")
            return
        if "unreachable" in self._said:
            self._screen.note("the API server answers again")
        self._forget("unreachable")
        self._jobs = jobs
        self._streams.update(pods)
        self._pods |= {pod.uid: pod for pod in pods}
        for job in jobs.values():
            self._tell(job, [pod for pod in pods if pod.owner == job.uid], now)
        self._screen.now("   ".join(self._live_text(job) for job in jobs.values()))

    def _live_text(self, job: JobState) -> str:
        seconds = seconds_between(job.started, job.finished or time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        return progress_text(job, self._progress.get(job.name), seconds)

    def _tell(self, job: JobState, pods: list[PodState], now: float) -> None:
        """Say what is new about one job and its pods; give up where waiting is of no use."""
        if job.state == "absent":
            why = f" ({job.reason})" if job.reason else ""
            problem = f"job {job.name} does not exist{why}; `make up` makes it"
            self._bear(f"absent {job.name}", ABSENT_SECONDS, now, problem)
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

    def _tell_pod(self, pod: PodState, earlier: int, hosts: int, now: float) -> None:
        text = describe(pod, earlier)
        if pod.state in ("pending", "creating") and not pod.reason:
            reason = self._warning(pod.uid, now)
            text += f": {reason}" if reason else ""
        # Kubernetes changes between the failed pull and the wait for the next one: that is not news.
        known = pod.reason == "ImagePullBackOff" and "ErrImagePull" in self._said.get(pod.uid, "")
        if hosts <= MANY_HOSTS and not known:
            self._say(pod.uid, text)
        self._bear_stuck(pod.uid, pod.reason, now, text)

    def _warning(self, uid: str, now: float) -> str:
        """The last warning about an object that has been waiting for a while; empty where there is none."""
        asked, text = self._events.get(uid, (now, ""))
        self._events.setdefault(uid, (now, ""))
        if now - asked >= EVENTS_SECONDS:
            try:
                text = (self._cluster.warnings(uid) or [""])[-1]
            except Unreachable:
                return text  # The next poll tells of it.
            self._events[uid] = (now, text)
        return text

    def _say(self, key: str, text: str) -> None:
        """Show a line unless it was the last one said about `key`."""
        if self._said.get(key) != text:
            self._said[key] = text
            self._screen.note(text)

    def _bear(self, key: str, seconds: float, now: float, reason: str) -> None:
        """Give up when `key` has lasted longer than `seconds`."""
        if now - self._since.setdefault(key, now) > seconds:
            raise GivenUp(f"{reason} (for {spell(seconds)})")

    def _bear_stuck(self, uid: str, reason: str, now: float, text: str) -> None:
        if reason in STUCK:
            self._bear(f"stuck {uid}", STUCK_SECONDS, now, text)
        else:
            self._forget(f"stuck {uid}")

    def _forget(self, key: str) -> None:
        self._since.pop(key, None)
        self._said.pop(key, None)

    def _finish(self) -> None:
        """Show how each job ended, and what to do where one did not end well."""
        self._screen.note("", "")
        for job in self._jobs.values():
            pods = [pod for pod in self._pods.values() if pod.owner == job.uid]
            tails = {uid: list(tail) for uid, tail in self._tails.items()}
            style = "bold green" if job.state == "complete" else "bold red"
            for line in summary(job, pods, self._progress.get(job.name), tails):
                self._screen.note(line, style)
                style = ""
        if any(job.state != "complete" for job in self._jobs.values()):
            self._screen.note(
                "`make logs` shows all of the log, `make status` every host; `make down` removes everything", ""
            )


def follow(
    kubeconfig_path: str, namespace: str, job_names: Sequence[str], out: TextIO, context: str | None = None
) -> int:
    """Follow the jobs to their end on `out`; 0 when all are complete, 1 when one is not, 130 after Ctrl-C."""
    found = StackOutputs(kubeconfig_path=kubeconfig_path, namespace=namespace, jobs=tuple(job_names), context=context)
    return _follow(found, found.jobs, Screen(out))


def _follow(found: StackOutputs, names: Sequence[str], screen: Screen) -> int:
    if not names:
        screen.note("the stack has no jobs: nothing to follow")
        return 0
    try:
        return Follower(_cluster(found), names, screen).run()
    except Unreachable as error:
        screen.note(f"{error}; `make up` starts the stack", "red")
        return 1
    except KeyboardInterrupt:
        screen.note("stopped following; the job goes on: `make logs` follows it again, `make down` ends it")
        return 130


def _cluster(found: StackOutputs) -> Cluster:
    return Cluster(found.kubeconfig_path, found.namespace, found.context)


def print_logs(cluster: Cluster, names: Sequence[str], screen: Screen) -> None:
    """Show what the jobs' pods have printed so far."""
    pods = sorted(cluster.pods(names), key=lambda pod: (pod.job, pod.created, pod.place))
    ranks = {name: {rank for pod in pods if pod.job == name for rank in pod.ranks} for name in names}
    total = sum(map(len, ranks.values()))
    for pod in pods:
        try:
            lines = cluster.log(pod)
        except Unreachable as error:
            # The cluster has answered before: it is this pod's node that does not.
            screen.note(f"{pod.job}/{pod.label}: its log cannot be read: {error}")
            continue
        for text in lines:
            screen.line(pod, text, total)


def main() -> int:
    """`make logs`: as `follow`; 0 with --no-follow when the logs were shown."""
    parser = argparse.ArgumentParser(prog="python -m commands.follow", description="Show the logs of the stack's jobs.")
    parser.add_argument("--job", default=os.environ.get("JOB") or None, help="only this job; by default $JOB, else all")
    parser.add_argument("--rank", type=int, help="only this rank")
    parser.add_argument("--no-follow", action="store_true", help="show what is there and end")
    options = parser.parse_args()
    try:
        found = stack_outputs()
        if options.job is not None and options.job not in found.jobs:
            raise NoStack(f"--job {options.job}: no such job in the stack; it has {', '.join(found.jobs) or 'none'}")
        names = found.jobs if options.job is None else (options.job,)
        screen = Screen(sys.stdout, only_rank=options.rank)
        if options.no_follow:
            print_logs(_cluster(found), names, screen)
            return 0
        return _follow(found, names, screen)
    except (NoStack, PulumiFailed, Unreachable) as error:
        print(f"make logs: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
