"""`make preview`: report the effects, price, quota and broken rules of a change of a stack.

The preview compares the stack's file with the same file in an earlier commit: the last common commit of HEAD and
--base. The default of --base is `main`, `origin/main` or `origin/HEAD`. Without such a commit the stack counts as new.
The preview compares two recordings of the program: the resources that it declares before and after the change. The
clouds' official Pulumi plugins also check and plan these resources, without credentials, if Pulumi can install them.

The deployed stack may differ from the earlier commit. --engine compares with the deployed stack instead. It runs
Pulumi's engine, which needs credentials for a cloud stack.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markdown import Markdown

from commands.confirmation import LOGINS, RemainingQuota, missing_credentials, query_error, remaining_quota
from commands.environment import PROJECT
from commands.interrupts import CommandError
from commands.monitor.cluster import StackOutputs, Unreachable
from commands.monitor.pod_state import PodState
from commands.output_file import make_output_folder
from commands.review.official import PluginReview, review_by_plugins
from commands.review.page import drawing, page
from commands.review.plan import difference, steps_of
from commands.review.recorded import Record, ensure_operator_objects, record_file, records_before
from commands.review.report import Report, comment, invalid_settings, markdown, removal, verdict
from commands.review.report import as_json as report_json
from commands.stack import ensure_stack, outputs, pulumi, stack_exists
from infra.make_command import make_command
from infra.naming import POOL_LABEL
from policy.catalogue import RULES
from policy.rules import findings
from stack.config import StackConfig, load_file

BASES = ("main", "origin/main", "origin/HEAD")
"""Default bases. The preview uses the first that has a common commit with HEAD."""
NO_ANCESTOR_STATUS = 1
"""Exit status of `git merge-base` if the commits have no common ancestor."""
FILE_WIDTH = 100
"""Maximum number of characters of a line of the report if the output is not a terminal."""


def main(
    stack: str,
    *,
    base: str | None = None,
    engine: bool = False,
    credentials: bool = False,
    no_plugins: bool = False,
    rehearsal: Path | None = None,
    as_json: bool = False,
    output: Path | None = None,
) -> int:
    """Show the report, and write it to the folder `output`.

    Return 1 if the change must not be merged, 2 if it cannot be checked.
    """
    file = PROJECT / f"Pulumi.{stack}.yaml"
    try:
        rehearsed = _rehearsal(rehearsal) if rehearsal else None
        commit = _base(base)
        earlier = _earlier(file.name, commit)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    before = _parsed(earlier) if earlier is not None else None
    if earlier is not None and not file.exists():
        content = {"stack": stack, "passes": True, "removed": True}
        _show(removal(stack, before), content, as_json=as_json)
        _write(removal(stack, before), content, output)
        return 0
    try:
        after = load_file(file)
    except ValueError as error:
        content = {"stack": stack, "passes": False, "failures": str(error).splitlines()}
        _show(invalid_settings(stack, str(error), _console().width - 2), content, as_json=as_json)
        _write(invalid_settings(stack, str(error)), content, output)
        return 2
    try:
        ensure_operator_objects(after.operators | (before.operators if before else frozenset()))
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 2
    graph = record_file(file.read_text(encoding="utf-8"), after)
    old, limits = list[Record](), ""
    if earlier is not None and commit is not None and not engine:
        old, limits = records_before(stack, earlier, before, commit)
    if engine:
        ensure_stack(stack)
        steps = steps_of(pulumi("preview", "--json", "--show-sames", "--stack", stack, quiet=True))
    else:
        steps = difference(old, graph)
    report = Report(
        stack=stack,
        after=after,
        before=before,
        steps=steps,
        is_from_engine=engine,
        base=describe_base(commit, is_new=earlier is None, engine=engine),
        comparison_limits=limits,
        findings=findings(graph, RULES, after.policy.settings()),
        running=running_jobs(stack) if credentials and any(map(_has_pools, (before, after))) else {},
        plugins=PluginReview() if no_plugins or engine else review_by_plugins(old, graph, steps),
        rehearsal=rehearsed,
        # Without the settings before the change, the quota that the stack already uses is unknown.
        remaining_quota=_remaining_quota(after) if credentials and (before or earlier is None) else {},
    )
    today = datetime.now(tz=UTC).date()
    text, content = markdown(report, today), report_json(report, today)
    _show(text, content, as_json=as_json)
    _write("\n".join([text, *drawing(after, steps), ""]), content, output)
    if output is not None:
        (output / "report.html").write_text(page(stack, text, after, steps), encoding="utf-8")
    return 1 if report.failures else 0


def _has_pools(config: StackConfig | None) -> bool:
    return config is not None and config.cloud.provisioned is not None


def _remaining_quota(config: StackConfig) -> RemainingQuota:
    """Return the account's remaining quota. Raises CommandError if it cannot be read."""
    if config.cloud.provisioned is None:
        return {}
    if problem := missing_credentials(config.cloud.scheme):
        raise CommandError(f"--credentials: {problem}")
    try:
        return remaining_quota(config.cloud)
    except FileNotFoundError as error:
        raise CommandError(f"--credentials: the quota cannot be read; install `{error.filename}`") from error
    except subprocess.CalledProcessError as error:
        raise CommandError(
            f"--credentials: the quota cannot be read: `{error.cmd[0]}`: {query_error(error)}; "
            f"if you are not logged in, {LOGINS[config.cloud.scheme]}; otherwise check your permissions"
        ) from error


def _base(requested: str | None) -> str | None:
    """Return the commit to compare with; None without a base. Raises ValueError for an unknown or unrelated commit."""
    for each in BASES if requested is None else (requested,):
        words = ["git", "merge-base", each, "HEAD"]
        done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    if requested is not None:
        reason = "it has no common ancestor with this commit"
        if done.returncode != NO_ANCESTOR_STATUS:
            reason = f"git cannot read it ({done.stderr.strip().removeprefix('fatal: ')})"
        raise ValueError(f"--base {requested}: {reason}; run `git fetch`, or name another commit")
    return None


def describe_base(commit: str | None, *, is_new: bool, engine: bool) -> str:
    """Return sentences that name the base of the comparison."""
    if commit is None:
        settings = "Before: nothing, because git has no commit to compare with"
    else:
        words = ["git", "log", "-1", "--format=%h of %cs", commit]
        done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True)
        at = f"commit {done.stdout.strip()}"
        settings = f"Before: nothing, because {at} has no such stack" if is_new else f"Before: {at}"
    if engine:
        return f"Changes: compared with the deployed stack. Prices, quotas and jobs: compared with git. {settings}."
    return f"{settings}. `--engine` compares with the deployed stack instead."


def _earlier(name: str, commit: str | None) -> str | None:
    """Return the text of the stack's file in a commit; None if the commit is None or does not have the file."""
    if commit is None:
        return None
    listed = subprocess.run(
        ["git", "ls-tree", "--name-only", commit, name], cwd=PROJECT, capture_output=True, text=True, check=True
    )
    if not listed.stdout.strip():
        return None
    return subprocess.run(
        ["git", "show", f"{commit}:./{name}"], cwd=PROJECT, capture_output=True, text=True, check=True
    ).stdout


def _parsed(text: str) -> StackConfig | None:
    """Return the settings in a text of an earlier commit. If they are invalid, print the reason and return None.

    Accept missing files of jobs, and locations, versions and machine types that the cloud no longer offers.
    """
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        try:
            return load_file(Path(file.name), checks_availability=False, checks_machine=False)
        except ValueError as error:
            print(f"the settings before the change cannot be read: {error}", file=sys.stderr)
            return None


def _rehearsal(file: Path) -> dict[str, Any]:
    """Return the report in the file of a rehearsal. Raises ValueError if the file cannot be read."""
    try:
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        verdict(found)
        return found
    except (OSError, ValueError, TypeError, KeyError) as error:
        remedy = "name a file with the output of `python -m commands.rehearse STACK --json`"
        raise ValueError(f"--rehearsal {file}: cannot be read ({error}); {remedy}") from error


def _console() -> Console:
    """Return a console for stdout."""
    return Console(width=None if sys.stdout.isatty() else FILE_WIDTH)


def _show(text: str, content: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(content, indent=2))
    else:
        _console().print(Markdown(text))


def _write(text: str, content: dict[str, Any], folder: Path | None) -> None:
    if folder is not None:
        make_output_folder(folder)
        (folder / "report.md").write_text(text, encoding="utf-8")
        (folder / "comment.md").write_text(comment(text), encoding="utf-8")
        (folder / "report.json").write_text(json.dumps(content, indent=2), encoding="utf-8")


def jobs_by_pool(pods: Iterable[PodState], nodes: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return pool -> jobs that have an unfinished pod on one of its nodes."""
    pools = {node["metadata"]["name"]: node["metadata"].get("labels", {}).get(POOL_LABEL) for node in nodes}
    found: dict[str, set[str]] = {}
    for pod in pods:
        pool = pools.get(pod.node)
        if pool and not pod.is_over:
            found.setdefault(pool, set()).add(pod.job)
    return {pool: sorted(jobs) for pool, jobs in sorted(found.items())}


def running_jobs(stack: str) -> dict[str, list[str]]:
    """Return pool -> running jobs. Raises CommandError if the stack has a cluster that cannot be queried.

    Not yet tested on a cloud.
    """
    found = outputs(stack) if stack_exists(stack) else {}
    if "kubeconfig_path" not in found:
        return {}
    try:
        cluster = StackOutputs.of(stack, found).cluster()
        return jobs_by_pool(cluster.pods_of_all_stacks(), cluster.nodes())
    except Unreachable as error:
        down = make_command("down", STACK=stack)
        raise CommandError(
            f"--credentials: stack {stack}: its cluster did not report the running jobs: {error}; check your "
            f"permissions and your connection to it; if the cluster was deleted, run {down}"
        ) from error
