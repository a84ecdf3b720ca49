"""Where a rehearsal keeps what it needs while it runs, and the environment in which its programs run."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml

from commands import orphans
from commands.environment import PROJECT, stack_environment
from infra.kubeconfig import PROVIDER_TMPDIR
from infra.local.settings import ClusterSettings, cache_folder

FIRST_PORT = 16821
PORTS = 100
SECRET_PLACEHOLDER = "a-secret-of-the-rehearsal"
_keepers: dict[str, socket.socket] = {}
"""By the rehearsal's name, of which one runs at a time."""


def rehearsal_folder(name: str) -> Path:
    """The folder of the rehearsal of that name; removed at its end."""
    return cache_folder() / "rehearsals" / name


@contextmanager
def only_one(folder: Path) -> Iterator[None]:
    """Hold the lock of the rehearsal in `folder`. Raises RuntimeError while another has it."""
    lock_file = folder.with_name(f"{folder.name}.lock")
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RuntimeError(
                f"a rehearsal named {folder.name!r} is running: wait, or `make rehearse NAME=another`"
            ) from error
        yield
        lock_file.unlink()


def cluster_settings(name: str, port: int | None) -> ClusterSettings:
    """The cluster of the rehearsal of that name, at a port that is kept for it unless one is given."""
    # No stack has a name with a slash: https://www.pulumi.com/docs/iac/concepts/stacks/#create-stack
    stack = f"rehearsal/{name}"
    return ClusterSettings(owner=str(PROJECT), stack=stack, name=name, nodes=0, port=port or keep_port(name))


def keep_port(name: str) -> int:
    """A free port from 16821 on, that rehearsal's while this process lives. Raises RuntimeError where there is none.

    The cluster opens it half a minute later: until then neither another rehearsal nor a connection to somewhere may
    have it. One that is bound, without anyone who listens, can be opened by those alone that set SO_REUSEADDR.
    """
    if name in _keepers:
        return int(_keepers[name].getsockname()[1])
    for port in range(FIRST_PORT, FIRST_PORT + PORTS):
        keeper = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            keeper.bind(("127.0.0.1", port))
        except OSError:
            keeper.close()
            continue
        # Only now: with it, two rehearsals would both bind the port.
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        atexit.register(keeper.close)
        _keepers[name] = keeper
        return port
    raise RuntimeError(f"no free port from {FIRST_PORT} to {FIRST_PORT + PORTS - 1} on 127.0.0.1")


def write_settings(stack_file: Path, target: Path) -> None:
    """Copy a stack's settings; encrypted values, which only their owner can read, become a placeholder."""
    content = yaml.safe_load(stack_file.read_text(encoding="utf-8")) or {}
    config = {
        key: SECRET_PLACEHOLDER if isinstance(value, dict) and "secure" in value else value
        for key, value in (content.get("config") or {}).items()
    }
    # JSON is YAML that leaves no text without quotes, which Pulumi might take for a number.
    target.write_text(json.dumps({"config": config}, ensure_ascii=False), encoding="utf-8")


def backend_folder(folder: Path) -> Path:
    """Return the folder of Pulumi's backend in a rehearsal."""
    return folder / "pulumi"


def run_mark(folder: Path) -> str:
    """Return what marks the processes of a rehearsal's `pulumi` runs."""
    return orphans.run_mark(folder, "rehearsal")


def environment(folder: Path) -> dict[str, str]:
    """What the engine, the program and the plugins see: simulated clouds, and no credentials of real ones."""
    found = {
        key: value
        for key, value in stack_environment().items()
        if not key.startswith(("GOOGLE_", "AWS_", "CLOUDSDK_", "KUBECONFIG"))
    }
    backend = backend_folder(folder)
    backend.mkdir(parents=True, exist_ok=True)
    temporary = folder / "tmp"
    temporary.mkdir(mode=0o700, exist_ok=True)
    return found | {
        "PATH": os.pathsep.join([str(PROJECT / "rehearsal" / "bin"), found["PATH"]]),
        "PULUMI_BACKEND_URL": f"file://{backend}",
        "PULUMI_CONFIG_PASSPHRASE": "rehearsal",
        PROVIDER_TMPDIR: str(temporary),
        "TMPDIR": str(temporary),
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "SSL_CERT_FILE": str(folder / "authorities.pem"),
        "TRAINYARD_REHEARSAL": str(folder),
        orphans.RUN: run_mark(folder),
    }
