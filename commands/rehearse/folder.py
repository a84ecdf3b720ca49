"""Folder, port, settings and commands of a rehearsal."""

from __future__ import annotations

import atexit
import fcntl
import json
import os
import re
import socket
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from commands import stack_files
from commands.environment import PROJECT, stack_environment
from infra.kubeconfig import PROVIDER_TMPDIR
from infra.local.settings import ClusterSettings, cache_folder
from infra.make_command import make_command
from infra.project import CHECKOUT

FIRST_PORT = 16821
"""First port that a rehearsal tries for its cluster's API."""
PORT_COUNT = 100
"""Number of ports that a rehearsal tries."""
MAX_ERRORS = 5
"""Maximum number of errors of a failed command in the report."""
MAX_CHARACTERS = 400
"""Maximum characters of an error in the report. `...` replaces the rest."""
_RESOURCE_LINE = re.compile(r"^  (\S.*\)):$")
"""Line of Pulumi's diagnostics that names a resource."""
BACKEND = "pulumi"
"""Subfolder of a rehearsal's folder, in which Pulumi stores the stack's state."""
SECRET_PLACEHOLDER = "a-secret-of-the-rehearsal"
"""Value of every encrypted setting in a rehearsal."""
_bound_sockets: dict[str, socket.socket] = {}
"""Name of a rehearsal -> socket that reserves its port."""


def rehearsal_folder(name: str) -> Path:
    """Return the folder of the rehearsal with this name. The rehearsal removes it at the end."""
    return cache_folder() / "rehearsals" / name


@contextmanager
def rehearsal_lock(folder: Path) -> Iterator[None]:
    """Hold the lock of the rehearsal in `folder`. Raises RuntimeError if another process holds it."""
    lock_file = folder.with_name(f"{folder.name}.lock")
    lock_file.parent.mkdir(parents=True, exist_ok=True)
    with lock_file.open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise RuntimeError(
                f"a rehearsal named {folder.name!r} is already running; wait until it ends, or run "
                f"{make_command('rehearse', NAME='another')}"
            ) from error
        yield
        # Do not delete the lock file: another process that has opened it would then lock a deleted file.


def cluster_settings(name: str, port: int | None) -> ClusterSettings:
    """Return the settings of the rehearsal's cluster, with a reserved port unless one is given."""
    # The slash prevents a collision with a real stack, whose name cannot contain one:
    # https://www.pulumi.com/docs/iac/concepts/stacks/#create-stack
    stack = f"rehearsal/{name}"
    return ClusterSettings(owner=str(PROJECT), stack=stack, name=name, nodes=0, port=port or reserve_port(name))


def reserve_port(name: str) -> int:
    """Reserve a free port from FIRST_PORT on until this process ends. Raises RuntimeError if none is free.

    The cluster opens the port about half a minute later. Until then, a bound socket keeps other rehearsals and outgoing
    connections from using the port. The cluster sets SO_REUSEADDR, so it can open the port in spite of that socket.
    """
    if name in _bound_sockets:
        return int(_bound_sockets[name].getsockname()[1])
    for port in range(FIRST_PORT, FIRST_PORT + PORT_COUNT):
        bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            bound.bind(("127.0.0.1", port))
        except OSError:
            bound.close()
            continue
        # Set SO_REUSEADDR only after `bind`: otherwise two rehearsals could bind the same port.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        atexit.register(bound.close)
        _bound_sockets[name] = bound
        return port
    raise RuntimeError(
        f"127.0.0.1: no free port from {FIRST_PORT} to {FIRST_PORT + PORT_COUNT - 1}; stop a program that uses one"
    )


def write_settings(stack_file: Path, target: Path) -> list[str]:
    """Copy a stack's settings to `target`, except the encrypted ones. Return the keys of the encrypted settings."""
    content = yaml.safe_load(stack_file.read_text(encoding="utf-8")) or {}
    config = content.get("config") or {}
    encrypted = [key for key, value in config.items() if isinstance(value, dict) and "secure" in value]
    kept = {key: value for key, value in config.items() if key not in encrypted}
    # JSON quotes every string, so Pulumi cannot read a string as a number.
    target.write_text(json.dumps({"config": kept}, ensure_ascii=False), encoding="utf-8")
    return encrypted


def run_mark(folder: Path) -> str:
    """Return the value of RUN_VARIABLE for the processes of a rehearsal."""
    return stack_files.run_mark(folder, "rehearsal")


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of `pulumi`. It has plugins of the simulated clouds and no credentials of real clouds."""
    found = {
        key: value
        for key, value in stack_environment().items()
        if not key.startswith(("GOOGLE_", "AWS_", "CLOUDSDK_", "KUBECONFIG"))
    }
    backend = folder / BACKEND
    backend.mkdir(parents=True, exist_ok=True)
    temporary = folder / "tmp"
    temporary.mkdir(mode=0o700, exist_ok=True)
    return found | {
        "PATH": os.pathsep.join([str(CHECKOUT / "simulation" / "bin"), found["PATH"]]),
        "PULUMI_BACKEND_URL": f"file://{backend}",
        "PULUMI_CONFIG_PASSPHRASE": "rehearsal",
        PROVIDER_TMPDIR: str(temporary),
        "TMPDIR": str(temporary),
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "SSL_CERT_FILE": str(folder / "authorities.pem"),
        "TRAINYARD_REHEARSAL": str(folder),
        stack_files.RUN_VARIABLE: run_mark(folder),
    }


def run_program(
    command: Sequence[str], folder: Path, environment: Mapping[str, str], on_line: Callable[[str], None] | None
) -> tuple[int, str]:
    """Run a command in `folder`. Pass each output line to `on_line`. Return the exit status and the whole output."""
    lines = []
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Ctrl-C in a terminal must reach only this process, which then kills the child.
        start_new_session=True,
    ) as process:
        try:
            for line in process.stdout or ():
                lines.append(line)
                if on_line:
                    on_line(line.removesuffix("\n"))
        except BaseException:
            # Without `kill`, an interrupted rehearsal would wait until the command ends.
            process.kill()
            raise
    return process.returncode, "".join(lines)


def first_errors(output: str) -> list[str]:
    """Return the first errors of Pulumi's diagnostics, each with its resource. Drop duplicates, shorten long errors."""
    found: dict[str, None] = {}
    resource = ""
    lines = output.partition("\nDiagnostics:\n")[2].splitlines()
    for index, line in enumerate(lines):
        if match := _RESOURCE_LINE.match(line):
            resource = match[1]
        text = line.strip()
        if not text.startswith("error: ") or text == "error: update failed":
            continue
        if text.endswith(":"):
            # The last line of the block names the cause, as in a traceback.
            text = f"{text} {_last_line_of_block(lines[index + 1 :])}"
        found[f"{resource}: {text.removeprefix('error: ')}"] = None
    return [each if len(each) <= MAX_CHARACTERS else f"{each[:MAX_CHARACTERS]}..." for each in [*found][:MAX_ERRORS]]


def _last_line_of_block(lines: list[str]) -> str:
    last = ""
    for line in lines:
        if not line.startswith("    ") and line.strip():
            break
        last = line.strip() or last
    return last
