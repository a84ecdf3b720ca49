"""Fork trainer processes from a server that has imported torch. This saves about a second per process.

`python -m tests.trainer.fork_server FD` is the server. For each request on the socket FD, it forks a waiter. The waiter
forks the requested process, and reports its process id and exit status on a socket that the request contains.
"""

from __future__ import annotations

import atexit
import importlib
import io
import json
import multiprocessing.util
import os
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Any

MAX_REQUEST_BYTES = 2**20


class ForkedProcess:
    """Process that the server forked. It has the members of `subprocess.Popen` that the tests use."""

    def __init__(self, program: Sequence[str], cwd: str, environment: Mapping[str, str]) -> None:
        # tests/lanes.py records this event as the start of a process.
        sys.audit("subprocess.Popen", program[0], program, cwd, environment)
        # Packets keep the id and the exit status apart if the process ends before the id is read.
        self._status, status = socket.socketpair(type=socket.SOCK_SEQPACKET)
        read_end, write_end = os.pipe()
        request = json.dumps({"program": list(program), "cwd": cwd, "environment": dict(environment)}).encode()
        with status:
            socket.send_fds(_request_socket(), [request], [status.fileno(), write_end])
        os.close(write_end)
        self.stdout: IO[str] = os.fdopen(read_end, encoding="utf-8", errors="replace")
        self.pid = int(self._status.recv(64))
        self.returncode: int | None = None

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit status, negative for a signal. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._status.settimeout(timeout)
            try:
                self.returncode = int(self._status.recv(64))
            except TimeoutError:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0) from None
            self._status.close()
        return self.returncode

    def poll(self) -> int | None:
        """Return the exit status, or None if the process still runs."""
        try:
            return self.wait(0.001)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)


@cache
def _request_socket() -> socket.socket:
    """Start the server once, and return the socket for requests. The server ends with this process."""
    client_end, server_end = socket.socketpair(type=socket.SOCK_SEQPACKET)
    with server_end:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.trainer.fork_server", str(server_end.fileno())],
            # torch reads this variable at its import.
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            pass_fds=[server_end.fileno()],
        )

    def stop() -> None:
        client_end.close()
        process.wait()

    atexit.register(stop)
    return client_end


def _serve(requests: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the waiters
    while True:
        content, descriptors, _flags, _address = socket.recv_fds(requests, MAX_REQUEST_BYTES, 2)
        if not content:
            return
        if os.fork() == 0:
            requests.close()
            _wait(json.loads(content), *descriptors)
        for each in descriptors:
            os.close(each)


def _wait(request: dict[str, object], status: int, output: int) -> None:
    """Fork the process, report its id and its exit status, and exit."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    pid = os.fork()
    if pid == 0:
        os.close(status)
        _run(request, output)
    os.close(output)
    with socket.socket(fileno=status) as answers:
        answers.sendall(str(pid).encode())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        answers.sendall(str(code).encode())
    os._exit(0)


def _run(request: dict[str, object], output: int) -> None:
    """Run `python -u -m PROGRAM` in this process and exit."""
    os.setsid()
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    # Create unbuffered streams, as `python -u` does. The server's own streams are buffered if its output is a file.
    sys.stdout = io.TextIOWrapper(os.fdopen(1, "wb", 0, closefd=False), write_through=True)
    sys.stderr = io.TextIOWrapper(os.fdopen(2, "wb", 0, closefd=False), write_through=True)
    environment, program = request["environment"], request["program"]
    assert isinstance(environment, dict)
    assert isinstance(program, list)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(str(request["cwd"]))
    tempfile.tempdir = None
    setattr(multiprocessing.util, "spawnv_passfds", _fork_code)  # noqa: B010  # mypy rejects an assignment
    sys.argv = program
    code = 0
    try:
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    sys.stdout.flush()
    atexit._run_exitfuncs()
    os._exit(code)


def _fork_code(_path: bytes, arguments: Any, descriptors: Sequence[int]) -> int:
    """Fork a process for `python -c CODE`, the command with which `multiprocessing` starts its fork server."""
    if pid := os.fork():
        return pid
    for each in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if each > 2 and each not in descriptors:
            with suppress(OSError):  # `iterdir` has closed its own descriptor
                os.close(each)
    code = 1
    try:
        with suppress(SystemExit):
            exec(compile(arguments[-1], "forked", "exec"), {"__name__": "forked"})
        code = 0
    except BaseException:
        traceback.print_exc()
    os._exit(code)


if __name__ == "__main__":
    from trainer.launch import PRELOADED_MODULES

    for name in ("torch.distributed.run", *PRELOADED_MODULES):
        importlib.import_module(name)
    _serve(socket.socket(fileno=int(sys.argv[1])))
