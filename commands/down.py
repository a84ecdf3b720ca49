"""`make down`: check the state, run `pulumi destroy`, then verify that this machine has no leftovers of the stack."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from subprocess import CalledProcessError
from typing import Any

from commands.cloud_inventory import adopt_pending
from commands.environment import PROJECT, STATE, PassphraseRejected, StateBroken
from commands.interrupts import CommandError, finish_unless_repeated, run_command, set_closing
from commands.stack import (
    BACKEND_VARIABLE,
    JOB_TYPE,
    JOBS_TARGET,
    PulumiFailed,
    outputs,
    pulumi,
    read_deployment,
    recover,
    remove_provider_files,
    reset_state,
    stack_exists,
)
from commands.stack_files import stack_lock
from commands.stack_settings import settings_error
from commands.workflows import JOBS_ONLY
from infra.aws.inventory import late_log_groups
from infra.inventory import run_json
from infra.local import lifecycle
from infra.local.settings import ClusterSettings, clusters_folder, stack_cluster
from infra.make_command import command_title, make_command, option_text
from settings.problem import Problem
from stack.config import load_file, missing_file, raw_settings

CLUSTER_RESOURCE = "::local-processes"
"""End of the URN of a local cluster's resource (infra/local/provider.py)."""


def destroy(stack: str) -> bool:
    """Destroy the stack's resources. Return False if there are none."""
    if not has_backend():
        return False
    try:
        recover(stack)
        if not stack_exists(stack):
            return False
        adopt_pending(stack)
        resources = read_deployment(stack).get("resources")
    except StateBroken as error:
        if not is_local(stack):
            raise
        print(f"{error}; the cluster is deleted with its data, and the stack starts with an empty state")
        print(f"stack {stack}: the broken state is kept as {reset_state(stack)}")
        return True
    if not resources:
        return False
    reject_other_cache(stack, resources)
    reject_protected_cluster(stack, resources)
    reject_unapplied_keep(stack, resources)
    before = outputs(stack)
    with settings_options(stack) as options:
        if should_delete_jobs_first(resources):
            delete_jobs(lambda *words: pulumi(*words, "--stack", stack, *options))
        pulumi("destroy", "--yes", "--skip-preview", "--stack", stack, *options)
    delete_late_log_groups(resources)
    # The settings may have changed since the last `up`, so use the state.
    if before.get("bucket_url") and any(each.get("retainOnDelete") for each in buckets_in(resources)):
        print(f"the bucket {before['bucket_url']} is kept because of `bucket.keep`; it costs money until you delete it")
    return True


def has_backend() -> bool:
    """Return True if the project has a backend: a shared one, or one that an earlier command created."""
    return BACKEND_VARIABLE in os.environ or (STATE / "pulumi" / ".pulumi").exists()


def is_local(stack: str) -> bool:
    """Return True if every resource of the stack is on this machine."""
    if lifecycle.find_leftovers(stack_cluster(str(PROJECT), stack)):
        return True
    try:
        return load_file(PROJECT / f"Pulumi.{stack}.yaml").cloud.nodes_here > 0
    except ValueError:
        # Without valid settings, the stack may have resources in a cloud.
        return False


def reject_other_cache(stack: str, resources: Iterable[Mapping[str, Any]]) -> None:
    """Raise CommandError if the stack's local cluster is in another cache folder, where no command would find it."""
    cluster = stack_cluster(str(PROJECT), stack)
    for each in resources:
        is_cluster = str(each["urn"]).endswith(CLUSTER_RESOURCE)
        if is_cluster and (problem := lifecycle.other_cache_problem(cluster, each.get("outputs") or {})):
            raise CommandError(f"{problem}; nothing was changed")


def reject_protected_cluster(stack: str, resources: Iterable[Mapping[str, Any]]) -> None:
    """Raise CommandError if the state has a cluster with deletion protection.

    Pulumi deletes a cluster after the resources that depend on it. Without this check, it would delete the jobs, the
    nodes and the bucket before the cloud or the provider rejects the deletion of the cluster.
    """
    if any((each.get("outputs") or {}).get("deletionProtection") is True for each in resources):
        up, down = make_command("up", STACK=stack), make_command("down", STACK=stack)
        message = f"protects the deployed cluster against deletion; write `false`, run {up}, then {down}"
        raise _rejection("down.protected_cluster", "deletion_protection", message)


def buckets_in(resources: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the buckets in a state."""
    return [each for each in resources if str(each.get("type")).endswith("/bucket:Bucket")]


def reject_unapplied_keep(stack: str, resources: Iterable[Mapping[str, Any]]) -> None:
    """Raise CommandError if the settings keep the bucket, but the state does not.

    Pulumi reads `retainOnDelete` and `forceDestroy` from the state, so it would delete the bucket with all its files.
    """
    if all(each.get("retainOnDelete") for each in buckets_in(resources)):
        return
    if _settings_keep_bucket(PROJECT / f"Pulumi.{stack}.yaml"):
        up, down = make_command("up", STACK=stack), make_command("down", STACK=stack)
        message = f"is not applied yet, so {down} would delete the bucket; run {up} to apply it, or write `false`"
        raise _rejection("down.keep_not_applied", "bucket.keep", message)


def _settings_keep_bucket(file: Path) -> bool:
    """Return True if the settings keep the bucket, even if other settings are invalid; False without readable settings.

    The default of `bucket.keep` is true.
    """
    try:
        return load_file(file, checks_availability=False).cloud.keeps_bucket
    except ValueError:
        pass
    with suppress(OSError, ValueError):
        platform = raw_settings(file).get("platform")
        bucket = platform.get("bucket") if isinstance(platform, dict) else None
        return not (isinstance(bucket, dict) and bucket.get("keep") is False)
    return False


def _rejection(code: str, key: str, message: str) -> CommandError:
    """Return the error for a key of the platform whose value `true` prevents the destroy."""
    return CommandError(str(Problem(code, ("platform", *key.split(".")), f"{message}; nothing was deleted", True)))


@contextmanager
def settings_options(stack: str) -> Iterator[tuple[str, ...]]:
    """Yield Pulumi's options for a destroy. If the settings file is missing or invalid, they name a substitute."""
    file = PROJECT / f"Pulumi.{stack}.yaml"
    if not settings_error(file):
        yield ()
        return
    if file.exists():
        doctor = make_command("doctor", STACK="")
        print(f"{file.name}: cannot be used ({doctor} shows why); Pulumi destroys the resources in the state")
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as substitute:
        json.dump({"config": {"trainyard:platform": {"kind": "local"}, "trainyard:jobs": []}}, substitute)
        substitute.flush()
        yield "--config-file", substitute.name


def should_delete_jobs_first(resources: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if the stack has jobs and no local cluster. The jobs of a local cluster end with it."""
    urns = [str(each["urn"]) for each in resources]
    has_jobs = any(JOB_TYPE in urn for urn in urns)
    return has_jobs and not any(urn.endswith(CLUSTER_RESOURCE) for urn in urns)


def delete_jobs(run: Callable[..., object]) -> None:
    """Delete the jobs before the rest of the stack, so that they can save a checkpoint. If that fails, print the error.

    Raises PassphraseRejected.
    """
    try:
        target = ("--target", JOBS_TARGET, "--target-dependents")
        run("destroy", "--yes", "--skip-preview", *target, "--message", JOBS_ONLY)
    except PassphraseRejected:
        raise
    except PulumiFailed as error:
        print(f"the jobs could not be deleted first, so the whole stack is deleted now: {error}", file=sys.stderr)


def delete_late_log_groups(resources: Iterable[Mapping[str, Any]]) -> None:
    """Delete log groups that EKS recreates after the deletion of its clusters.

    `resources` are the stack's resources before the destroy. Ignore failures: the group may not exist, or `aws` may not
    be installed. `make verify-empty` reports groups that remain.
    """
    for group, region in late_log_groups(resources):
        with suppress(FileNotFoundError, CalledProcessError):
            run_json("aws", "logs", "delete-log-group", f"--log-group-name={group}", f"--region={region}")


def main() -> int:
    """Destroy the stack, or the cluster that ORPHAN names, and verify that nothing is left on this machine."""
    if name := os.environ.get("ORPHAN"):
        return stop_abandoned(name)
    stack = os.environ.get("STACK", "local")
    with stack_lock(stack, make_command("down", STACK=stack)):
        return take_down(stack)


def take_down(stack: str) -> int:
    """Destroy the stack and verify that this machine has no leftovers of it. Return the exit status."""
    begun = time.monotonic()
    has_removed = destroy(stack)
    remove_provider_files(stack)
    set_closing(f"{make_command('down', STACK=stack)} continues from there")
    cluster = stack_cluster(str(PROJECT), stack)
    # `up` may have died before the cluster was in the stack's state, or the state is lost.
    if stop_cluster(cluster):
        print(f"the cluster of stack {stack} was not in the stack's state and is deleted")
        has_removed = True
    if has_leftovers(cluster):
        return 1
    file = PROJECT / f"Pulumi.{stack}.yaml"
    if not has_removed and not file.exists() and not (has_backend() and stack_exists(stack)):
        report_abandoned()
        raise CommandError(f"{missing_file(file)}; nothing was changed")
    text = f"{end_text(stack)}; took {time.monotonic() - begun:.1f} s"
    print(text if has_removed else "nothing to do: the stack has no resources")
    report_abandoned()
    return 0


def has_leftovers(cluster: ClusterSettings) -> bool:
    """Return True if this machine has leftovers of a cluster, and print them."""
    left = lifecycle.find_leftovers(cluster)
    if left:
        problem = "leftovers on this machine; end or remove them:"
        print(f"{command_title('down')}: {problem}", *left, sep="\n  ", file=sys.stderr)
    return bool(left)


def end_text(stack: str) -> str:
    """Return the closing message if nothing is left on this machine. `down` does not list the cloud's resources."""
    text = "nothing is left in the stack's state or on this machine"
    try:
        cloud = load_file(PROJECT / f"Pulumi.{stack}.yaml").cloud
    except ValueError:
        return text
    if cloud.nodes_here:
        return "nothing is left"
    return f"{text}; {make_command('verify-empty', STACK=stack)} checks the cloud" if cloud.provisioned else text


def stop_cluster(cluster: ClusterSettings) -> bool:
    """Stop a cluster and delete its data, even after a first Ctrl-C. Return False if the cluster did not exist."""
    with finish_unless_repeated(command_title("down"), f"the removal of the cluster of stack {cluster.stack}"):
        return lifecycle.stop(cluster)


def report_abandoned() -> None:
    """Print the clusters of checkouts that no longer exist, and the command that deletes each."""
    for each in lifecycle.abandoned_clusters():
        command = make_command("down", STACK="", ORPHAN=each.folder.name)
        print(
            f"the cluster of stack {each.stack} belongs to {each.owner}, which no longer exists; {command} deletes it"
        )


def stop_abandoned(name: str) -> int:
    """Delete the cluster with this name if its checkout no longer exists. Return the exit status."""
    found = {each.folder.name: each for each in lifecycle.abandoned_clusters()}
    if name not in found:
        print(
            f"{command_title('down')}: {option_text('ORPHAN', name)}: {why_not_abandoned(name, list(found))}",
            file=sys.stderr,
        )
        return 1
    cluster = found[name]
    set_closing(f"{make_command('down', STACK='', ORPHAN=name)} continues from there")
    stop_cluster(cluster)
    if has_leftovers(cluster):
        return 1
    print(f"the cluster of stack {cluster.stack} of {cluster.owner} is deleted; it has no leftovers")
    return 0


def why_not_abandoned(name: str, names: list[str]) -> str:
    """Return the reason why `ORPHAN` cannot be the name of this cluster."""
    saved = lifecycle.saved_settings(clusters_folder() / name)
    if saved:
        command = make_command("down", STACK=saved.stack)
        return f"belongs to {saved.owner}, which still exists; run {command} there"
    allowed = (
        f"must be one of {', '.join(names)}" if names else "the checkout of every cluster on this machine still exists"
    )
    return f"unknown cluster; {allowed}"


if __name__ == "__main__":
    sys.exit(run_command("make down", main))
