"""Plugin protocol of Pulumi: a server for the engine that started the plugin."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc
from google._upb import _message

from setup.attached import die_with_parent

CHANNEL_OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
MAX_CONCURRENT_CALLS = 256  # A call that awaits a resource holds its thread. The engine limits the number itself.


def serve(register: Callable[[grpc.Server], None]) -> None:
    """Serve the services of `register`.

    The engine reads the port from stdout and ends this process with an interrupt.
    """
    die_with_parent()
    # The Pulumi SDK sets this too. The schema of a CRD is nested too deeply for protobuf's Python reader by default.
    _message.SetAllowOversizeProtos(True)  # type: ignore[no-untyped-call]  # has no annotations
    signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(0))
    server = grpc.server(ThreadPoolExecutor(max_workers=MAX_CONCURRENT_CALLS), options=CHANNEL_OPTIONS)
    register(server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    print(port, flush=True)
    server.wait_for_termination()
