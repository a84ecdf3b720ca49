"""`python -m commands.workflows`: affected stacks, expired stacks and minimum permissions, for workflows on GitHub.

`affected BASE` runs before set-up, with the standard library alone. docs/workflows.md describes the permissions. They
have not yet been tested on a cloud account.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from math import nan
from pathlib import Path, PurePosixPath
from typing import Any

from infra.project import project_folder

PROJECT = project_folder()
PROGRAM_PATHS = (
    *("__main__.py", "infra/", "policy/", "settings/", "stack/", "workloads/"),
    *("images/", "setup/go/", "trainer/", "Pulumi.yaml", "requirements"),
)
"""Prefixes of the paths that every stack depends on. A test compares them with the modules that the program loads."""
JOB_PAGES = PurePosixPath("docs/recipes")
"""Folder of the pages with examples that a stack's `jobs` may name."""
JOBS_ONLY = "trainyard: delete the jobs before the rest of the stack"
"""Message of a `destroy` of the jobs alone, in the history of a stack."""
PAGE_SIZE = "100000"
"""Maximum number of entries of a stack's history. Pulumi's default is 10:
https://www.pulumi.com/docs/iac/cli/commands/pulumi_stack_history/"""
_STACK = re.compile(r"Pulumi\.([\w-]+)\.yaml")


def is_program(path: str) -> bool:
    """Return True if every stack depends on the path."""
    return path.startswith(PROGRAM_PATHS)


def is_named(path: str, text: str) -> bool:
    """Return True if the text of a stack's file names the path as a script, a file of requirements or an example.

    This searches the text, because the standard library has no YAML parser.
    """
    pure = PurePosixPath(path)
    page = pure.parent == JOB_PAGES and re.search(rf"(?<![\w-]){re.escape(pure.stem)}(?![\w-])", text)
    packages = re.search(rf"\brequirements[\"']?:\s*[\"']?{re.escape(path)}(?![\w.-])", text)
    return bool(page or packages) or f"./{path}" in text


def has_platform(kind: str, text: str) -> bool:
    """Return True if the text of a stack's file has a platform of this kind. Search the text, as `is_named` does."""
    return re.search(rf"""^[^#\n]*\bkind["']?:\s*["']?{kind}(?![\w-])""", text, re.MULTILINE) is not None


def affected(changed: Iterable[str], stacks: Mapping[str, str]) -> list[str]:
    """Return the stacks that depend on a changed path. `stacks` maps the name of a stack to the text of its file."""
    paths = list(changed)
    if any(map(is_program, paths)):
        return sorted(stacks)
    own = {found[1] for path in paths if (found := _STACK.fullmatch(path))}
    return sorted(name for name, text in stacks.items() if name in own or any(is_named(path, text) for path in paths))


def removed(changed: Iterable[str], stacks: Iterable[str]) -> list[str]:
    """Return the stacks whose file the change removes."""
    return sorted({found[1] for path in changed if (found := _STACK.fullmatch(path))} - set(stacks))


def changed_paths(revisions: str) -> list[str]:
    """Return the paths that `git diff` of the revisions names. Raises CalledProcessError for an unknown commit."""
    words = ["git", "diff", "-z", "--name-only", "--no-renames", revisions, "--"]
    done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=True)
    return [path for path in done.stdout.split("\0") if path]


def first_up(history: Iterable[Mapping[str, Any]]) -> datetime | None:
    """Return the start of the first `up` since the last successful `destroy`, from a history with the newest first.

    A `destroy` of the jobs alone does not count: the rest of the stack may still exist.
    """
    begun = None
    for each in history:
        if each["kind"] == "destroy" and each["result"] == "succeeded" and each.get("message") != JOBS_ONLY:
            break
        if each["kind"] == "update":
            begun = datetime.fromisoformat(each["startTime"]).astimezone(UTC)
    return begun


def is_expired(begun: datetime | None, ttl_hours: float | None, now: datetime) -> bool:
    """Return True if a stack that has been up since `begun` has outlived `ttl_hours`; False if either is None."""
    return begun is not None and ttl_hours is not None and now - begun > timedelta(hours=ttl_hours)


def affected_stacks(base: str, *, with_removed: bool, no_local: bool) -> list[str]:
    """Return the stacks that the changes since a commit affect. Raises CalledProcessError for an unknown commit.

    Leave out the stacks of platform `kubeconfig`, because a workflow has no kubeconfig. With `no_local`, also leave
    out stacks of platform `local`, because a workflow cannot update or rehearse them.
    """
    changed = changed_paths(f"{base}...HEAD")
    files = {found[1]: path for path in PROJECT.glob("Pulumi.*.yaml") if (found := _STACK.fullmatch(path.name))}
    stacks = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    left_out = ("kubeconfig", "local") if no_local else ("kubeconfig",)
    kept = {name: text for name, text in stacks.items() if not any(has_platform(kind, text) for kind in left_out)}
    return [*affected(changed, kept), *(removed(changed, stacks) if with_removed else [])]


def ttl_of(file: Path) -> float | None:
    """Return the `ttl_hours` of a stack's file, even if its other settings are invalid.

    Settings that were valid for `up` can become invalid later, for example when support of a Kubernetes version ends.
    Raises OSError or ValueError if `ttl_hours` cannot be read.
    """
    from stack.config import MAX_TTL_HOURS, load_file, raw_settings

    try:
        return load_file(file).ttl_hours
    except ValueError:
        value = raw_settings(file).get("ttl_hours")
    if value is None:
        return None
    try:
        hours = float(value)
    except (TypeError, ValueError):
        hours = nan
    if not 0 < hours <= MAX_TTL_HOURS:
        raise ValueError(f"trainyard:ttl_hours = {value}: must be a number above 0, at most {MAX_TTL_HOURS}; write one")
    return hours


def expired_stacks() -> tuple[list[str], list[str]]:
    """Return the stacks past their `ttl_hours`, and the stacks that cannot be checked. Print each error."""
    from commands.stack import UNKNOWN_STACK, PulumiFailed, pulumi

    expired, unchecked, now = list[str](), list[str](), datetime.now(tz=UTC)
    for file in sorted(PROJECT.glob("Pulumi.*.yaml")):
        stack = file.name.split(".")[1]
        try:
            if (ttl := ttl_of(file)) is None:
                continue
            words = ("stack", "history", "--json", "--page-size", PAGE_SIZE, "--stack", stack)
            history = json.loads(pulumi(*words, quiet=True))
        except (OSError, ValueError, PulumiFailed) as error:
            # A stack that the backend does not have was never up.
            if UNKNOWN_STACK not in str(error):
                print(f"{stack}: its ttl_hours cannot be checked: {error}", file=sys.stderr)
                unchecked.append(stack)
            continue
        if is_expired(first_up(history), ttl, now):
            expired.append(stack)
    return expired, unchecked


def permissions(stack: str) -> Any:
    """Return the minimum permissions to preview, create, destroy and list a cloud stack.

    The result is an IAM policy for EKS, and roles with their conditions for GKE. Raises ValueError for a stack without
    a cloud, or with settings that cannot be read.
    """
    from commands.review.recorded import run
    from stack.config import load_file

    config = load_file(PROJECT / f"Pulumi.{stack}.yaml")
    cloud = config.cloud.provisioned
    if cloud is None:
        kind = config.platform.kind
        raise ValueError(f"stack {stack}: platform {kind} needs no permissions in a cloud; name a stack of gke or eks")
    return cloud.permissions(run(cloud.declare).records)


def main(arguments: list[str]) -> int:
    """Print JSON. Return 1 if `expired` cannot check a stack, 2 if `permissions` fails, else 0.

    Raises CalledProcessError for an unknown commit.
    """
    parser = argparse.ArgumentParser(prog="python -m commands.workflows", description=__doc__)
    actions = parser.add_subparsers(dest="action", required=True)
    affecting = actions.add_parser("affected", help="the stacks that the changes since a commit affect")
    affecting.add_argument("base", help="the commit before the change")
    affecting.add_argument("--removed", action="store_true", help="also print the stacks whose file the change removes")
    affecting.add_argument("--no-local", action="store_true", help="leave out the stacks of platform `local`")
    actions.add_parser("expired", help="the stacks that are past their `ttl_hours`")
    permitted = actions.add_parser("permissions", help="the minimum permissions for a stack")
    permitted.add_argument("stack", help="a stack of GKE or EKS, such as `eks`")
    options = parser.parse_args(arguments)
    if options.action == "affected":
        print(json.dumps(affected_stacks(options.base, with_removed=options.removed, no_local=options.no_local)))
    elif options.action == "expired":
        expired, unchecked = expired_stacks()
        print(json.dumps(expired))
        return 1 if unchecked else 0
    else:
        try:
            print(json.dumps(permissions(options.stack), indent=2))
        except ValueError as error:
            print(error, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
