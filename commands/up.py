"""`make up`: check the settings, set up missing tools, run `pulumi up`, then follow the jobs until they end."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from subprocess import CalledProcessError
from typing import Any

from commands import confirmation
from commands.cloud_inventory import adopt_pending, refresh_stale, replace_options
from commands.down import CLUSTER_RESOURCE, reject_other_cache
from commands.environment import PROJECT, stack_environment
from commands.interrupts import CommandError, run_command, run_set_up, set_closing
from commands.pulumi_output import is_verbose
from commands.stack import (
    JOBS_TARGET,
    PulumiFailed,
    ensure_stack,
    outputs,
    pulumi,
    read_deployment,
    recover,
    save_kubeconfig,
)
from commands.stack_files import stack_lock
from infra.builtin_images import TRAINER
from infra.inventory import run_json
from infra.local import lifecycle
from infra.local.settings import stack_cluster
from infra.make_command import command_title, make_command
from settings.problem import Problem
from setup.disk import remaining_bytes
from setup.steps import steps
from stack import config as stack_config

_REQUIREMENTS_ERROR = re.compile(r"(^|\s)requirements: ")
"""Beginning of an error of images/layer/install.py, which installs a job's packages."""


def main(*, is_confirmed: bool = False, no_follow: bool = False) -> int:
    """Bring the stack up and follow its jobs. Return the exit status.

    `is_confirmed` answers questions with yes. With `no_follow`, return 0 while the jobs run.
    """
    stack = os.environ.get("STACK", "local")
    begun, before = time.monotonic(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    file = PROJECT / f"Pulumi.{stack}.yaml"
    if stack_config.main([str(file)]) != 0:
        return 1
    config = stack_config.load_file(file)
    # The disk space for operators and other images is not known.
    tools = steps(cluster=True) if config.cloud.nodes_here else []
    if problems := config.cloud.up_problems(str(PROJECT), stack, remaining_bytes(tools)):
        print(*problems, sep="\n", file=sys.stderr)
        return 1
    quota = confirmation.check_account(stack, config) if config.cloud.provisioned else {}
    with stack_lock(stack, make_command("up", STACK=stack)):
        if (status := set_up(config)) != 0:
            return status
        found = bring_up(
            stack,
            config,
            lambda options: confirmation.confirm_update(stack, config, quota, options, is_confirmed=is_confirmed),
        )
    os.environ.update(stack_environment())
    # Import late: importing the Kubernetes client takes a while, and the job runs meanwhile.
    from commands import job_results

    if no_follow:
        job_results.record_jobs(stack, config, found)
        status, has_all_jobs = 0, True
    else:
        status, has_all_jobs = job_results.follow_jobs(stack, config, found, before)
    if has_all_jobs:
        for name, why in sorted(job_results.unfollowed(config).items()):
            print(f"{name}: {why}")
        if is_verbose():
            print_outputs(found)
            took, down = time.monotonic() - begun, make_command("down")
            print(f"{command_title('up')} took {took:.0f} s; {down} removes the stack")
    return status


def set_up(config: stack_config.StackConfig) -> int:
    """Set up the tools that the stack needs and this machine lacks. Return the exit status."""
    options = [] if config.cloud.nodes_here else ["--no-cluster"]
    if config.builds_images:
        options.append("--image")
    options += [f"--operator={name}" for name in sorted(config.operators)]
    if config.cloud.nodes_here:
        options += [f"--builtin-image={name}" for name in sorted(config.builtin_images - {TRAINER})]
    closing = f"set-up keeps its finished steps, and the stack is unchanged; {make_command('up')} continues from there"
    return run_set_up([sys.executable, "-m", "setup", *options], closing)


def prepare(stack: str, config: stack_config.StackConfig) -> list[str]:
    """Recover the stack after a killed command, and create it if it is new. Return the options of its update.

    Raises PulumiFailed if `rejected_changes` returns any.
    """
    recover(stack)
    ensure_stack(stack)
    adopt_pending(stack)
    if config.cloud.nodes_here:
        remove_lost_cluster(stack, config)
        return []
    deployment = refresh_stale(
        config.cloud, lambda: read_deployment(stack), lambda *words: pulumi(*words, "--stack", stack)
    )
    reject_other_platform(stack, config, deployment.get("resources") or [])
    if rejected := rejected_changes(stack, config, deployment):
        raise PulumiFailed("\n".join(rejected))
    for urn in config.cloud.failed_resources(deployment):
        name = urn.rpartition("::")[2]
        print(f"stack {stack}: the creation of {name} has failed; the update replaces it", flush=True)
    return replace_options(config.cloud, deployment)


def bring_up(
    stack: str, config: stack_config.StackConfig, confirm: Callable[[Sequence[str]], None] = lambda _options: None
) -> dict[str, Any]:
    """Update the stack to match its settings. Return its outputs.

    Before the update, call `confirm` with Pulumi's options for it, except on platform `local`.
    """
    options = prepare(stack, config)
    if not config.cloud.nodes_here:
        confirm(options)
    with explain_requirements_error(config, make_command("up", STACK=stack)):
        pulumi("up", "--yes", "--skip-preview", "--suppress-outputs", *options, "--stack", stack)
    logs, down = make_command("logs", STACK=stack), make_command("down", STACK=stack)
    set_closing(f"the stack is up and its jobs continue; {logs} follows them, {down} removes the stack")
    found = outputs(stack)
    if config.cloud.provisioned:
        save_kubeconfig(stack, PROJECT / found["kubeconfig_path"])
    # Import late: importing the Kubernetes client takes a while, and the job runs meanwhile.
    from commands.job_results import deleted_jobs

    if deleted := deleted_jobs(stack, found):
        print(f"stack {stack}: recreating deleted jobs: {', '.join(deleted)}", flush=True)
        pulumi("refresh", "--yes", "--skip-preview", "--target", JOBS_TARGET, "--stack", stack)
        pulumi("up", "--yes", "--skip-preview", "--suppress-outputs", "--stack", stack)
    return found


@contextmanager
def explain_requirements_error(config: stack_config.StackConfig, again: str) -> Iterator[None]:
    """If an update fails to install a job's packages, raise an error that names the requirements files.

    `again` is the command to repeat.
    """
    try:
        yield
    except PulumiFailed as error:
        files = sorted({job.requirements for job in config.jobs if job.requirements})
        if not files or not _REQUIREMENTS_ERROR.search(error.diagnostics):
            raise
        raise PulumiFailed(
            f"{' or '.join(files)}: the packages cannot be installed; the reason is above; correct the file, then run "
            f"{again}"
        ) from error


def rejected_changes(stack: str, config: stack_config.StackConfig, deployment: Mapping[str, Any]) -> list[str]:
    """Return a line for each change that the cloud rejects, and for each existing object that `up` would take over."""
    problems = config.cloud.problems_in_state(deployment)
    if cloud := config.cloud.provisioned:
        # If the cloud's command is missing or fails, the update reports the same conflicts later.
        with suppress(FileNotFoundError, CalledProcessError):
            problems += cloud.problems_in_cloud(deployment, run_json)
    found = [str(each) for each in problems]
    if config.cloud.is_shared:
        # Import late, because this module is slow to import.
        from commands import existing_objects

        found += existing_objects.conflicts(stack, config, deployment)
    return found


def reject_other_platform(stack: str, config: stack_config.StackConfig, resources: Iterable[Mapping[str, Any]]) -> None:
    """Raise CommandError if the state has a cluster of another kind of platform, which the update would destroy."""
    kinds = {cloud.cluster_component: kind for kind, cloud in stack_config.CLOUDS.items() if cloud.cluster_component}
    deployed = {str(each.get("type")) for each in resources} & kinds.keys() - {config.cloud.cluster_component}
    for component in deployed:
        kind, down = kinds[component], make_command("down", STACK=stack)
        message = (
            f"would destroy the stack's cluster of kind `{kind}`; nothing was changed; use another stack, or write "
            f"`kind: {kind}` with its settings again and run {down} first"
        )
        raise CommandError(str(Problem("up.other_platform", ("platform", "kind"), message, config.platform.kind)))


def remove_lost_cluster(stack: str, config: stack_config.StackConfig) -> bool:
    """Destroy the stack's resources if the data of its local cluster is gone. Return True if they were destroyed.

    Pulumi cannot replace such a cluster by an update. Raises CommandError if the cluster is in another cache folder, or
    of another platform.
    """
    cluster = stack_cluster(str(PROJECT), stack)
    if lifecycle.identity(cluster) is not None:
        return False
    resources = read_deployment(stack).get("resources") or []
    reject_other_cache(stack, resources)
    reject_other_platform(stack, config, resources)
    known = [each.get("outputs") or {} for each in resources if each["urn"].endswith(CLUSTER_RESOURCE)]
    if not any(each.get("owner") == cluster.owner for each in known):
        return False
    print(
        f"stack {stack}: the data of its cluster is gone from {cluster.folder}; removing the cluster from the state",
        flush=True,
    )
    pulumi("destroy", "--yes", "--skip-preview", "--stack", stack)
    return True


def print_outputs(found: dict[str, object]) -> None:
    """Print the stack's outputs, without empty ones."""
    print("\nOutputs of the stack:", *_lines(found, indent="  "), sep="\n")


def _lines(found: dict[str, object], indent: str) -> Iterator[str]:
    for name, value in sorted(found.items()):
        if value in ({}, [], "", None):
            continue
        if isinstance(value, dict):
            yield f"{indent}{name}:"
            yield from _lines(value, indent + "  ")
        else:
            yield f"{indent}{name}: {', '.join(value) if isinstance(value, list) else value}"


if __name__ == "__main__":
    sys.exit(run_command("make up", main))
