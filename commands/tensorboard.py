"""`make tensorboard`: TensorBoard with the profiler plugin on the stack's bucket. JOB=NAME shows one job's curves."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

from commands.interrupts import STILL_RUNNING, CommandError, run_command, set_closing
from commands.monitor.cluster import outputs_with
from infra.project import CHECKOUT

PROGRAM = CHECKOUT / ".venv-tensorboard" / "bin" / "tensorboard"
PORT = "6006"
"""TensorBoard's default port; `PORT=` sets another."""


def check_port(port: int) -> None:
    """Raise CommandError if this machine cannot serve on a port."""
    try:
        socket.create_server(("localhost", port)).close()
    except OSError as error:
        # The error's own text repeats the address.
        reason, other = os.strerror(error.errno or 0), port + 1 if port < 65535 else 6007
        raise CommandError(
            f"--port {port}: cannot be used ({reason}); name a free port, such as `--port {other}`"
        ) from error


def log_folder(bucket: str, job: str) -> str:
    """Return the location of the events: a path on this machine, or a URL that TensorBoard opens by fsspec."""
    root = bucket.removeprefix("file://").rstrip("/")
    return f"{root}/{job}" if job else root


def command_line(bucket: str, job: str, port: str) -> list[str]:
    """Return the command. The server is reachable only from this machine."""
    # The fast loader reads only disks and GCS, and gives no error for other locations.
    return [
        str(PROGRAM),
        f"--logdir={log_folder(bucket, job)}",
        "--host=localhost",
        f"--port={port}",
        "--load_fast=false",
    ]


def main() -> int:
    """Serve until Ctrl-C. Return the exit status."""
    set_closing(STILL_RUNNING)
    found = outputs_with(os.environ.get("STACK", "local"), "bucket_url")
    command = command_line(str(found["bucket_url"]), os.environ.get("JOB", ""), os.environ.get("PORT", PORT))
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(run_command("make tensorboard", main))
