"""Processes of Pulumi's plugins: run a program or serve the plugin protocol, and die with the engine.

If Python runs this file by its path, the file needs only the standard library, and no PYTHONPATH.
"""

from __future__ import annotations

import ctypes
import os
import runpy
import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

PR_SET_PDEATHSIG = 1
CHANNEL_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
MAX_CONCURRENT_CALLS = 256  # A call that awaits a resource holds its thread. The engine itself limits the calls.


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies. `kill -9` of the engine then leaves no process.

    If the parent dies during this function, before the kernel call, this process exits here. If the parent died before
    this function, this process fails at its first write.
    """
    parent = os.getppid()
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:
        os._exit(1)


def serve(register: Callable[[grpc.Server], None]) -> None:
    """Serve the services that `register` adds.

    The engine reads the port from stdout and ends this process with an interrupt.
    """
    # Import here: a program's own Python may run this file by path, and may lack these modules.
    from concurrent.futures import ThreadPoolExecutor

    import grpc
    from google._upb import _message

    die_with_parent()
    # The schema of a CRD is nested more deeply than protobuf allows by default. The Pulumi SDK sets this option too.
    _message.SetAllowOversizeProtos(True)  # type: ignore[no-untyped-call]  # has no annotations
    signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(0))
    server = grpc.server(ThreadPoolExecutor(max_workers=MAX_CONCURRENT_CALLS), options=CHANNEL_OPTIONS)
    register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()


def main(arguments: list[str]) -> None:
    """Run `-m MODULE ARGUMENTS...` or `FILE ARGUMENTS...` as the main program, which dies with the parent."""
    die_with_parent()
    if arguments[0] == "-m":
        sys.argv = arguments[1:]
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.pop(0)  # Remove this file's folder, from which the program must not import.
        sys.argv = arguments
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
