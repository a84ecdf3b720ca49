"""Runs the Pulumi CLI on a stack of this project: makes the stack at first use, frees it from a dead owner's lock."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from commands.checkpoint import repair
from commands.environment import PROJECT, stack_environment
from setup.pulumi_cli import has_cli

SHARED = "PULUMI_BACKEND_URL"
"""With it stacks are kept where other machines have them too: there may be one although nothing was set up here."""
SALT = b"encryptionsalt:"


class PulumiFailed(RuntimeError):
    """A `pulumi` command ended with an error that it has shown."""


def pulumi(*words: str, quiet: bool = False) -> str:
    """Run `pulumi`; quiet returns its output, else it goes to the terminal. Raises PulumiFailed.

    Raises FileNotFoundError where there is no `pulumi` and no stack of another machine's to look at.
    """
    if SHARED in os.environ and not has_cli():
        set_up = [sys.executable, "-m", "setup", "--no-cluster"]
        if subprocess.run(set_up, cwd=PROJECT, check=False, stdout=sys.stderr).returncode != 0:
            raise PulumiFailed("there is no `pulumi` here and set-up did not get one; what it said is above")
    with settings_without_salt():
        done = subprocess.run(
            ["pulumi", *words],
            cwd=PROJECT,
            env=stack_environment(),
            stdout=subprocess.PIPE if quiet else None,
            stderr=subprocess.PIPE if quiet else None,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        detail = f":\n{done.stderr.strip()}" if quiet else ""
        raise PulumiFailed(f"`pulumi {' '.join(words)}` failed with {done.returncode}{detail}")
    return done.stdout or ""


@contextmanager
def settings_without_salt() -> Iterator[None]:
    """Keep `encryptionsalt` out of settings files that had none: it fits one checkout alone, whose state has it.

    Pulumi writes numbers as text when it adds the salt; a file that says the same gets its own words back. One that
    was not there and has nothing else in it goes.
    """
    files = sorted(PROJECT.glob("Pulumi.*.yaml"))
    before = {path: content for path in files if SALT not in (content := path.read_bytes())}
    try:
        yield
    finally:
        for path, content in before.items():
            if (now := path.read_bytes()) != content and _settings(now) == _settings(content):
                path.write_bytes(content)
        for path in set(PROJECT.glob("Pulumi.*.yaml")) - set(files):
            if all(line.startswith(SALT) for line in path.read_bytes().splitlines()):
                path.unlink()


def _settings(content: bytes) -> dict[str, Any]:
    """What a settings file says, without the salt; single values as Pulumi writes them."""
    found = yaml.safe_load(content) or {}
    config = {key: _text(value) for key, value in (found.get("config") or {}).items()}
    return {key: value for key, value in found.items() if key.encode() + b":" != SALT} | {"config": config}


def _text(value: Any) -> Any:
    """A number as text, always in one way."""
    try:
        return str(float(value)) if isinstance(value, int | float | str) and not isinstance(value, bool) else value
    except ValueError:
        return value


def stack_exists(stack: str) -> bool:
    """Whether the backend has the stack."""
    stacks = json.loads(pulumi("stack", "ls", "--json", quiet=True))
    return any(each["name"].rpartition("/")[2] == stack for each in stacks)


def ensure_stack(stack: str) -> None:
    """Make the stack where the backend has none; its settings file stays as it was."""
    if stack_exists(stack):
        return
    try:
        pulumi("stack", "init", stack, "--no-select", quiet=True)
    except PulumiFailed as error:
        if "incorrect passphrase" not in str(error):
            raise
        raise PulumiFailed(
            f"Pulumi.{stack}.yaml: its `encryptionsalt` is of another checkout or passphrase; "
            "set PULUMI_CONFIG_PASSPHRASE to what it was made with, or remove that line and every `secure:` value"
        ) from error


def outputs(stack: str) -> dict[str, Any]:
    """The stack's outputs, secrets masked."""
    found: dict[str, Any] = json.loads(pulumi("stack", "output", "--json", "--stack", stack, quiet=True))
    return found


def save_kubeconfig(stack: str, path: Path) -> None:
    """Write the kubeconfig of a stack's cluster to a file of its owner alone; it asks the cloud for credentials."""
    text = pulumi("stack", "output", "kubeconfig", "--show-secrets", "--stack", stack, quiet=True)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")


def kubeconfig_of(stack: str, found: Mapping[str, Any]) -> str:
    """The kubeconfig file in a stack's outputs; that of a cloud's cluster is written where this checkout has none."""
    path = str(found.get("kubeconfig_path") or "")
    if not path or Path(path).is_absolute():
        return path
    file = PROJECT / path
    if not file.exists():
        save_kubeconfig(stack, file)
    return str(file)


def free_from_dead_owner(stack: str) -> bool:
    """Cancel an update whose `pulumi` died on this machine and left its lock; True where there was one."""
    backend = stack_environment()["PULUMI_BACKEND_URL"]
    if not backend.startswith("file://"):
        return False
    found = False
    for lock in Path(backend.removeprefix("file://")).glob(f".pulumi/locks/**/{stack}/*.json"):
        owner = json.loads(lock.read_text(encoding="utf-8"))
        if owner["hostname"] == socket.gethostname() and not _is_alive(int(owner["pid"])):
            found = True
    if found:
        for each in repair(backend, stack):
            print(f"stack {stack}: {each}", flush=True)
        pulumi("cancel", "--yes", "--stack", stack, quiet=True)
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
