"""`make up`: check the settings, set up missing tools, run `pulumi up`, then follow the jobs until they end."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from commands.adopt_orphans import adopt_pending
from commands.down import JOBS
from commands.environment import PROJECT, stack_environment
from commands.interrupts import Interrupted, run_child, run_command, set_closing
from commands.locks import only_command
from commands.stack import (
    PulumiFailed,
    ensure_stack,
    kubeconfig_of,
    outputs,
    pulumi,
    recover,
    save_kubeconfig,
)
from infra.image.builtin_images import TRAINER
from infra.local import lifecycle
from infra.local.settings import stack_cluster
from infra.make_command import make_command
from stack import config as stack_config

if TYPE_CHECKING:
    from commands.monitor.cluster import Cluster


def unfollowed(config: stack_config.StackConfig) -> dict[str, str]:
    """Return the jobs that do not end by themselves, each with the reason and advice."""
    found = {
        job.name: f"its hosts wait for you; {make_command('exec', JOB=job.name, RANK='0')} opens a shell in one"
        for job in config.jobs
        if job.interactive
    }
    return found | {job.name: "suspended; `suspend: false` starts it" for job in config.jobs if job.suspend}


def main() -> int:
    """Bring the stack up. The exit status is that of its jobs."""
    stack = os.environ.get("STACK", "local")
    begun, before = time.monotonic(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    file = PROJECT / f"Pulumi.{stack}.yaml"
    if stack_config.main([str(file)]) != 0:
        return 1
    config = stack_config.load_file(file)
    if found := config.cloud.up_problems(str(PROJECT), stack):
        print(*found, sep="\n", file=sys.stderr)
        return 1
    try:
        with only_command(stack, make_command("up", STACK=stack)):
            if (status := set_up(config)) != 0:
                return status
            brought = bring_up(stack, config)
    except PulumiFailed as error:
        print(f"make up: {error}", file=sys.stderr)
        return 1
    os.environ.update(stack_environment())
    status, is_there = follow_jobs(stack, config, brought, before)
    if is_there:
        for name, why in sorted(unfollowed(config).items()):
            print(f"{name}: {why}")
        print_outputs(brought)
        print(f"make up took {time.monotonic() - begun:.0f} s; {make_command('down')} removes the stack")
    return status


def set_up(config: stack_config.StackConfig) -> int:
    """Set up the tools that the stack needs and this machine lacks. Return the exit status."""
    options = [] if config.cloud.nodes_here else ["--no-cluster"]
    if config.builds_images:
        options.append("--image")
    options += [f"--operator={name}" for name in sorted(config.operators)]
    if config.cloud.nodes_here:
        options += [f"--own-image={name}" for name in sorted(config.builtin_images - {TRAINER})]
    done = run_child([sys.executable, "-m", "setup", *options], name="set-up", cwd=PROJECT)
    if done.is_stopped:
        raise Interrupted(
            f"set-up keeps what it has finished, and nothing of the stack has changed; {make_command('up')} goes on"
        )
    return done.status


def bring_up(stack: str, config: stack_config.StackConfig) -> dict[str, Any]:
    """Bring the stack to its settings, after recovery from a dead run. Return its outputs."""
    recover(stack)
    ensure_stack(stack)
    adopt_pending(stack)
    if config.cloud.nodes_here:
        remove_lost_cluster(stack)
    elif found := update_problems(stack, config):
        raise PulumiFailed("\n".join(found))
    pulumi("up", "--yes", "--skip-preview", "--stack", stack)
    logs, down = make_command("logs", STACK=stack), make_command("down", STACK=stack)
    set_closing(f"the stack is up and its jobs go on; {logs} follows them, {down} removes everything")
    brought = outputs(stack)
    if config.cloud.provisioned:
        save_kubeconfig(stack, PROJECT / brought["kubeconfig_path"])
    if deleted := deleted_jobs(stack, brought):
        print(f"stack {stack}: creating again what was deleted: job {', job '.join(deleted)}", flush=True)
        pulumi("refresh", "--yes", "--skip-preview", "--target", JOBS, "--stack", stack)
        pulumi("up", "--yes", "--skip-preview", "--stack", stack)
    return brought


def update_problems(stack: str, config: stack_config.StackConfig) -> list[str]:
    """Return why the cluster of the stack would reject the settings, one reason per line."""
    exported = json.loads(pulumi("stack", "export", "--stack", stack, quiet=True))["deployment"]
    found = [str(each) for each in config.cloud.problems_in_state(exported)]
    if config.cloud.is_shared:
        # Slow to import.
        from commands import existing_objects

        found += existing_objects.refused_for(stack, config, exported)
    return found


def deleted_jobs(stack: str, brought: dict[str, Any]) -> list[str]:
    """Return the jobs that Pulumi's state has and the cluster has not. An update without a refresh does not detect
    that.
    """
    from commands.monitor.cluster import Cluster, Unreachable

    try:
        cluster = Cluster(kubeconfig_of(stack, brought), brought["namespace"], brought.get("context"))
        found = cluster.jobs(brought["jobs"])
    except Unreachable:
        return []  # The follower waits for the API server.
    # A job with a reason may exist: the user may not list jobs of every kind.
    return [name for name, job in found.items() if job.state == "absent" and not job.reason]


def follow_jobs(stack: str, config: stack_config.StackConfig, brought: dict[str, Any], before: str) -> tuple[int, bool]:
    """Follow the jobs and write their run records.

    Return the exit status, and False if the caller should print nothing more: after Ctrl-C, or if the jobs are gone.
    `before` is the time at which the command began. Jobs that ended before it are described and not followed.
    """
    # Import late: importing the Kubernetes client takes a while, and the job has begun.
    from commands.follow import INTERRUPTED, follow
    from commands.monitor.cluster import Cluster, Unreachable

    kubeconfig, namespace, context = kubeconfig_of(stack, brought), brought["namespace"], brought.get("context")
    up = make_command("up", JOB=os.environ.get("JOB", ""))
    names = [name for name in brought["jobs"] if name not in unfollowed(config)]
    over = dict[str, str]()
    with suppress(Unreachable):  # The follower waits for the API server.
        over = report_finished(Cluster(kubeconfig, namespace, context), config, brought, names, before)
    status = int("failed" in over.values())
    followed = [name for name in names if name not in over]
    if followed or not brought["jobs"]:
        status = follow(kubeconfig, namespace, followed, sys.stdout, context, up) or status
    if status == INTERRUPTED:
        return status, False
    try:
        cluster = Cluster(kubeconfig, namespace, context)
        write_records(cluster, brought, names, is_here=config.cloud.nodes_here > 0)
        return status, all(job.state != "absent" for job in cluster.jobs(names).values())
    except Unreachable:
        return status or 1, False


def report_finished(
    cluster: Cluster, config: stack_config.StackConfig, brought: dict[str, Any], names: Iterable[str], before: str
) -> dict[str, str]:
    """Describe the jobs that ended before a time. Return their states by name."""
    from commands.finished_jobs import finished_lines

    over = {name: job for name, job in cluster.jobs(list(names)).items() if job.is_over and job.finished < before}
    if over:
        pods = cluster.pods(list(over))
        scripts = {job.name for job in config.jobs if job.script is not None}
        for name, job in over.items():
            record, bucket = brought["run_records"][name], str(brought["bucket_url"])
            print(*finished_lines(job, pods, record, bucket, is_script=name in scripts), sep="\n")
    return {name: job.state for name, job in over.items()}


def write_records(cluster: Cluster, brought: dict[str, Any], jobs: Iterable[str], *, is_here: bool) -> None:
    """Write the record of each job that is over next to its checkpoints, if this machine can write there.

    `is_here` is True if the cluster is on this machine. In another cluster a bucket that is a folder is on a node.
    """
    from commands.finished_jobs import COPY, HERE, WriteFailed, completed, write

    bucket = str(brought.get("bucket_url"))
    scheme = bucket.partition("://")[0]
    if scheme not in COPY and not (scheme == HERE and is_here):
        return
    for name, state in cluster.jobs(list(jobs)).items():
        if state.is_over:
            try:
                print(f"{name}: run record in {write(bucket, completed(brought['run_records'][name], state))}")
            except WriteFailed as error:
                print(f"warning: {name}: the run record is in the output run_records alone: {error}", file=sys.stderr)


def print_outputs(found: dict[str, object]) -> None:
    """Show the stack's outputs, one a line. Leaves out empty ones."""
    print("\nOutputs of the stack:")
    for line in _lines(found, indent="  "):
        print(line)


def _lines(found: dict[str, object], indent: str) -> Iterator[str]:
    for name, value in sorted(found.items()):
        if value in ({}, [], None):
            continue
        if isinstance(value, dict):
            yield f"{indent}{name}:"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{name}: {', '.join(value) if isinstance(value, list) else value}"


if __name__ == "__main__":
    sys.exit(run_command("make up", main))


CLUSTER_RESOURCE = "::local-processes"
"""End of the URN of a local cluster's resource (infra/local/cluster.py)."""


def remove_lost_cluster(stack: str) -> bool:
    """Destroy the resources in the state if the data of the stack's local cluster is gone. Return True if it was gone.

    The stack's other resources were in that cluster. The engine cannot replace the cluster: see
    LocalClusterProvider.diff.
    """
    cluster = stack_cluster(str(PROJECT), stack)
    if lifecycle.identity(cluster) is not None:
        return False
    resources = json.loads(pulumi("stack", "export", "--stack", stack, quiet=True))["deployment"].get("resources") or []
    known = [each.get("outputs") or {} for each in resources if each["urn"].endswith(CLUSTER_RESOURCE)]
    if not any(each.get("owner") == cluster.owner for each in known):
        return False
    print(
        f"stack {stack}: the data of its cluster is gone from {cluster.folder}; removing it from the state", flush=True
    )
    pulumi("destroy", "--yes", "--skip-preview", "--stack", stack)
    return True
