"""Commands about one job: stop it, resume it, run it again, open a shell in a pod."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from commands import confirmation, job_results
from commands.bucket import OUTPUTS, TOKENIZER_FOLDER, Bucket
from commands.confirmation import confirm, job_end, join_question
from commands.environment import PROJECT, stack_environment
from commands.interrupts import STILL_RUNNING, CommandError, set_closing
from commands.monitor.cluster import Cluster, StackNotFound, StackOutputs, job_named, outputs_with, stack_outputs
from commands.monitor.job_state import JobState, rerun_advice, why_no_pods
from commands.monitor.logs import Event, LogStreams, looks_like_an_error, parse_event
from commands.monitor.pod_state import PodState, latest_pods
from commands.monitor.screen import Detail, Screen
from commands.stack import JOBS_TARGET, pulumi
from commands.stack_files import stack_lock
from commands.stack_settings import read_settings
from commands.up import explain_requirements_error, prepare
from infra.make_command import DEFAULT_STACK, make_command, option_text
from settings.text import counted, wrap
from stack.config import StackConfig
from stack.run_record import checkpoints_folder
from workloads.kinds import KINDS

POLL_SECONDS = 1.0
END_SECONDS = 900.0
"""Seconds that the hosts of a stopped or deleted job may take to end after the job's `grace_seconds`."""
_STOP_LINE = re.compile(r"\bProcess \d+ got signal: 15\b|\bpreempted at step \d")
"""Lines of torchrun and of the trainer about the SIGTERM of a stop, which read like errors."""
_LOST_CONNECTION = re.compile(rb"^E\d{4} .*websocket: close|^error: error reading from error stream", re.MULTILINE)
"""kubectl's lines about a connection that ended before the program in the pod. Only the first has been observed:
https://github.com/kubernetes/kubernetes/blob/v1.37.2/staging/src/k8s.io/client-go/tools/remotecommand/errorstream.go"""
KUBECTL_TAIL_BYTES = 4096
"""Number of last bytes of kubectl's stderr in which to search for these lines."""
SHELL = ("sh", "-c", "exec $(command -v bash || echo sh)")
"""Shell of a pod: bash if the image has it."""


class JobError(CommandError):
    """Job that the command cannot change, or whose hosts do not end in time."""


class Stack:
    """Stack and job that a command acts on."""

    def __init__(self, target: str, job: str) -> None:
        """Read the stack's outputs and find the job in them. Raises CommandError; its message names `target`."""
        self.name = os.environ.get("STACK", DEFAULT_STACK)
        self.outputs: dict[str, Any] = outputs_with(self.name, *OUTPUTS)
        found = StackOutputs.of(self.name, self.outputs)
        self.cluster: Cluster = found.cluster()
        self.job = job_named(found, job, target)

    def config(self, *, checks_machine: bool = False) -> StackConfig:
        """Return the stack's settings. Raises CommandError. With `checks_machine`, also check the jobs' files."""
        return read_settings(PROJECT / f"Pulumi.{self.name}.yaml", checks_machine=checks_machine)

    def state(self) -> JobState:
        """Return the job's state."""
        return self.cluster.jobs([self.job])[self.job]

    def command(self, target: str, **variables: str) -> str:
        """Return a command about the job, for messages."""
        return make_command(target, STACK=self.name, JOB=self.job, **variables)


def stop(job: str) -> int:
    """Suspend a job, so that it can save a checkpoint, and wait until its hosts have ended. Return the exit status."""
    stack = Stack("stop", job)
    state = stack.state()
    if state.state == "absent":
        raise JobError(f"job {stack.job} does not exist; {make_command('up')} creates it")
    if state.is_over:
        raise JobError(f"job {stack.job} has already ended ({state.state}); {rerun_advice(state)}")
    if state.state == "suspended":
        print(f"{stack.job} is already stopped; {stack.command('resume')} continues it")
        return 0
    config = stack.config()
    for spec in config.jobs:
        if spec.name == stack.job and spec.interactive and not KINDS[spec.kind].suspends_interactive:
            raise JobError(
                f"the operator of kind {spec.kind} does not suspend an interactive job; to end {stack.job}, remove it "
                f"from Pulumi.{stack.name}.yaml and run {make_command('up', STACK=stack.name)}"
            )
    bucket = Bucket.of(stack.outputs, is_cluster_local=config.cloud.nodes_here > 0)
    fetch = "" if bucket.problem else stack.command("fetch")
    set_closing(f"the job ends in the background; {make_command('status')} shows it")
    pods = [pod for pod in stack.cluster.pods([stack.job]) if not pod.is_over]
    first = [pod for pod in pods if pod.index == 0]
    streams = LogStreams(stack.cluster, after={pod.uid: stack.cluster.newest_time(pod) for pod in first})
    screen = Screen(sys.stdout, only_rank=0, detail=Detail.READABLE)
    try:
        streams.update(first)
        stack.cluster.set_suspended(state, True)
        screen.note(f"{stack.job}: stopping; {counted(len(pods), 'host')} can save a checkpoint first", "")
        saved = _follow_to_the_end(stack, streams, screen, end_seconds(config, stack.job))
    finally:
        streams.stop()
    for line in stopped_lines(stack.job, saved, stack.command("resume"), fetch):
        screen.note(line, "")
    return 0


def end_seconds(config: StackConfig, job: str) -> float:
    """Return the maximum seconds to wait for the end of a job's hosts."""
    return END_SECONDS + sum(each.grace_seconds for each in config.jobs if each.name == job)


def _follow_to_the_end(stack: Stack, streams: LogStreams, screen: Screen, seconds: float) -> Event | None:
    """Show errors and checkpoints until no host runs. Return the event of the last checkpoint; None for none.

    Raises JobError if hosts still run after `seconds`.
    """
    saved: Event | None = None
    deadline, next_poll, is_over = time.monotonic() + seconds, 0.0, False
    while time.monotonic() < deadline:
        if time.monotonic() >= next_poll:
            pods = stack.cluster.pods([stack.job])
            streams.update([pod for pod in pods if pod.index == 0])
            is_over = all(pod.is_over for pod in pods)
            next_poll = time.monotonic() + POLL_SECONDS
        line = streams.next_line(POLL_SECONDS / 5)
        if line:
            saved = _show_end(*line, screen) or saved
        elif is_over and streams.are_over():
            return saved
    raise JobError(
        f"hosts of job {stack.job} still run after {seconds / 60:.0f} min; {make_command('status')} shows them"
    )


def _show_end(pod: PodState, text: str, screen: Screen) -> Event | None:
    """Show a line about a checkpoint or an error. Return the event of a checkpoint, else None."""
    event = parse_event(text)
    if event and event.name == "checkpoint":
        screen.line(pod, text, 1)
        return event
    if not _STOP_LINE.search(text) and looks_like_an_error(text):
        screen.line(pod, text, 1)
    return None


def stopped_lines(job: str, saved: Event | None, resume: str, fetch: str) -> list[str]:
    """Return the result of a stop, and the next commands. `saved` is the event of the last checkpoint.

    `fetch` is empty if this machine cannot reach the bucket.
    """
    copied = "what it has saved" if saved is None else "the checkpoint"
    copies = f"; {fetch} copies {copied}" if fetch else ""
    if saved is None:
        return [
            f"{job} is stopped; its hosts printed no line about a checkpoint, such as `checkpoint step=12`",
            f"  {resume} starts it again{copies}",
        ]
    step = saved.fields.get("step", "")
    return [
        f"{job} is stopped; step {step} is saved",
        f"  {resume} continues from step {step}{copies}",
    ]


def resume(job: str) -> int:
    """Resume a stopped job and follow it. Return the exit status."""
    stack = Stack("resume", job)
    before = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    state = stack.state()
    if state.state == "absent":
        raise JobError(f"job {stack.job} does not exist; {make_command('up')} creates it")
    if state.is_over:
        raise JobError(f"job {stack.job} is {state.state}; {rerun_advice(state)}")
    if state.state not in ("suspended", "queued"):
        raise JobError(f"job {stack.job} is {state.state}; {stack.command('logs')} follows it")
    config = stack.config()
    stack.cluster.set_suspended(state, False)
    return _follow(stack, config, before)


def rerun(job: str, *, fresh: bool, is_confirmed: bool) -> int:
    """Delete a job, create it again and follow it. Return the exit status. `fresh` also deletes its checkpoints."""
    stack = Stack("rerun", job)
    config = stack.config(checks_machine=True)
    before = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    if stack.job not in {each.name for each in config.jobs}:
        raise JobError(
            f"job {stack.job} is not in Pulumi.{stack.name}.yaml; to run it again, add it to `jobs` in that file, then "
            f"run {stack.command('rerun')}"
        )
    state, bucket = stack.state(), Bucket.of(stack.outputs, is_cluster_local=config.cloud.nodes_here > 0)
    is_script = any(each.name == stack.job and each.script for each in config.jobs)
    if state.state == "complete" and not fresh and not is_script:
        raise JobError(
            f"job {stack.job} is complete and would resume at its end; {stack.command('rerun', FRESH='1')} trains it "
            f"from the beginning; to train further, raise `epochs` in its `flags` and run {make_command('up')}"
        )
    folder = fresh_folder(stack, config) if fresh else ""
    saved = bucket.names(folder) if folder else []
    question = rerun_question(stack.job, state, bucket.location(folder), saved)
    if question:
        confirm(question, is_confirmed=is_confirmed)
    quota = confirmation.check_account(stack.name, config) if config.cloud.provisioned else {}
    with stack_lock(stack.name, make_command("rerun", STACK=stack.name)):
        options = prepare(stack.name, config)
        # The update may also end other jobs: jobs with changed settings or files, and jobs removed from the settings.
        if not config.cloud.nodes_here or len(stack.outputs["jobs"]) > 1:
            confirmation.confirm_update(stack.name, config, quota, options, is_confirmed=is_confirmed, rerun=stack.job)
        # If this command stops before it deletes the checkpoints, a rerun without FRESH would resume from them.
        again = stack.command("rerun", FRESH="1") if fresh else stack.command("rerun")
        set_closing(f"the job may be deleted; {again} creates it again")
        _delete(stack, state, end_seconds(config, stack.job))
        if folder:
            _remove_progress(stack.job, config, bucket, folder)
        with explain_requirements_error(config, again):
            for words in (("refresh", "--target", JOBS_TARGET), ("up", "--suppress-outputs", *options)):
                pulumi(*words, "--yes", "--skip-preview", "--stack", stack.name)
        stack.outputs = outputs_with(stack.name, *OUTPUTS)
    return _follow(stack, config, before)


def _remove_progress(job: str, config: StackConfig, bucket: Bucket, folder: str) -> None:
    """Move the job's earlier curves to another folder. Delete its checkpoints in `folder` and its tokenizer."""
    spec = next(each for each in config.jobs if each.name == job)
    prefix = spec.bucket_folder
    if earlier := bucket.put_curves_aside(prefix):
        place = job_results.short_home(bucket.location(earlier))
        print(wrap(f"{job}: moved the curves of its earlier runs to {place}", sys.stdout), flush=True)
    deleted = {folder: "checkpoints"}
    if spec.recipe:  # A script's own folder may have the same name.
        deleted[f"{prefix}/{TOKENIZER_FOLDER}"] = "tokenizer"
    for each, content in deleted.items():
        # List the folder again: a job that ends saves a last checkpoint.
        if bucket.names(each):
            bucket.delete(each)
            place = job_results.short_home(bucket.location(each))
            print(wrap(f"{job}: deleted the {content} in {place}", sys.stdout), flush=True)


def fresh_folder(stack: Stack, config: StackConfig) -> str:
    """Return the folder of the job's checkpoints in the stack's bucket; empty if the job saves none.

    Raises JobError if another job uses the folder, or if the job saves to another bucket.
    """
    spec = next(each for each in config.jobs if each.name == stack.job)
    other_bucket = spec.flag("bucket")
    if other_bucket == "":
        return ""
    up = make_command("up", STACK=stack.name)
    if other_bucket:
        raise JobError(
            f"{option_text('FRESH', '1')} deletes only checkpoints in the stack's bucket, and job {stack.job} has "
            f"`bucket: {other_bucket}` in its `flags`; nothing was deleted; to train from the beginning, "
            f"set `job` there to a new name, then run {up}"
        )
    folder = checkpoints_folder(spec)
    users = {name for name, record in stack.outputs["run_records"].items() if record["checkpoints"] == folder}
    users |= {each.name for each in config.jobs if checkpoints_folder(each) == folder}
    if others := sorted(users - {stack.job}):
        raise JobError(
            f"folder {folder} also belongs to job {', '.join(others)}; nothing was deleted; to train from the "
            f"beginning, set `job` in the `flags` of {stack.job} to a new name, then run {up}"
        )
    return folder


def rerun_question(job: str, state: JobState, location: str, saved: list[str]) -> str:
    """Return the question that a user must confirm before a job runs again; empty if there is nothing to confirm.

    `saved` are the names of the checkpoints to delete at `location`.
    """
    parts = [end] if (end := job_end(job, state)) else []
    if saved:
        shown = saved[0] if len(saved) == 1 else f"{saved[0]} to {saved[-1]}"
        parts.append(f"delete its checkpoints in {location} ({shown})")
    return join_question(parts)


def _delete(stack: Stack, state: JobState, seconds: float) -> None:
    """Delete a job and wait until it and its pods are gone."""
    if state.state == "absent":
        return
    stack.cluster.delete(state)
    print(f"{stack.job}: waiting until its hosts have ended", flush=True)
    wait_until(lambda: stack.state().uid != state.uid, seconds, f"job {stack.job} is not deleted")


def wait_until(condition: Callable[[], bool], seconds: float, problem: str) -> None:
    """Wait until the condition is true. Raises JobError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise JobError(f"{problem} after {seconds:.0f} s; {make_command('status')} shows what is left")
        time.sleep(POLL_SECONDS)


def _follow(stack: Stack, config: StackConfig, before: str) -> int:
    """Follow the job and write its run record. Return the exit status."""
    os.environ.update(stack_environment())
    status, _ = job_results.follow_jobs(stack.name, config, stack.outputs, before, (stack.job,))
    return status


def pod_of(pods: Sequence[PodState], rank: str, job: Callable[[], JobState]) -> PodState:
    """Return the running pod of a rank, or of a role such as `launcher`. Raises StackNotFound with the job's state."""
    running = [pod for pod in latest_pods(pods) if pod.state == "running"]
    for pod in running:
        if rank == pod.label or (rank.isdigit() and int(rank) in pod.ranks):
            return pod
    listed = ", ".join(pod.label for pod in running)
    why = f"; running: {listed}; name one of these, or see {make_command('status')}"
    why = why if listed else f": {why_no_pods(job())}"
    raise StackNotFound(f"{option_text('RANK', rank)}: no pod of this rank is running{why}")


def kubectl_command(found: StackOutputs, pod: PodState, command: Sequence[str]) -> list[str]:
    """Return the kubectl command that runs `command` in the pod; a shell if `command` is empty."""
    context = ["--context", found.context] if found.context else []
    terminal = ["--stdin", "--tty"] if sys.stdin.isatty() else ["--stdin"]
    kubectl = ["kubectl", *context, "--namespace", found.namespace, "exec", *terminal, pod.name, "--"]
    return [*kubectl, *(command or SHELL)]


def open_shell(command: Sequence[str]) -> int:
    """Open a shell in the pod of a rank, or run a command there. Return the exit status of kubectl."""
    set_closing(STILL_RUNNING)
    found = stack_outputs()
    name = job_named(found, os.environ.get("JOB", ""))
    cluster = found.cluster()
    pod = pod_of(cluster.pods([name]), os.environ.get("RANK") or "0", lambda: cluster.jobs([name])[name])
    environment = {**stack_environment(), "KUBECONFIG": found.kubeconfig_path}
    # Ctrl-C ends kubectl, but the Kubernetes API has no call to end the program in the pod.
    again = make_command("exec", JOB=name, RANK=os.environ.get("RANK", ""))
    set_closing(f"job {name} and the programs in its pod continue; {again} opens a shell again")
    status, is_lost = run_kubectl(kubectl_command(found, pod, command), environment)
    if is_lost:
        print(
            f"the connection to pod {pod.name} on {pod.node} ended: its host ended, was stopped, or does not answer; "
            f"the exit status of the program is unknown; {make_command('status')} shows the host",
            file=sys.stderr,
        )
    return status


def run_kubectl(words: Sequence[str], environment: Mapping[str, str]) -> tuple[int, bool]:
    """Run `kubectl exec` at this terminal. Return its exit status, and True if it lost its connection to the pod.

    Only the text of kubectl's stderr distinguishes a lost connection from a program that ends with 1.
    """
    tail = b""
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE) as child:
        assert child.stderr is not None
        try:
            while chunk := os.read(child.stderr.fileno(), 65536):
                tail = (tail + chunk)[-KUBECTL_TAIL_BYTES:]
                sys.stderr.buffer.write(chunk)
                sys.stderr.flush()
        except BaseException:  # subprocess.run also kills its child, even after a signal.
            child.kill()
            raise
    return child.returncode, child.returncode != 0 and _LOST_CONNECTION.search(tail) is not None
