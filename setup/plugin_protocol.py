"""Plugin protocol of Pulumi: a server for the engine that started the plugin, and a client of that engine."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import grpc
from google._upb import _message
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc

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


class Engine:
    """Client of the engine for messages about a resource.

    It is silent without an engine, as in a plugin run by hand.
    """

    def __init__(self, address: str) -> None:
        self._stub = (
            engine_pb2_grpc.EngineStub(grpc.insecure_channel(address, options=CHANNEL_OPTIONS)) if address else None
        )

    def info(self, urn: str, message: str) -> None:
        """Print a line below the resource, which stays after the update."""
        self._log(engine_pb2.INFO, urn, message, ephemeral=False)

    def warning(self, urn: str, message: str) -> None:
        """Print a warning below the resource, which stays after the update."""
        self._log(engine_pb2.WARNING, urn, message, ephemeral=False)

    def error(self, urn: str, message: str) -> None:
        """Print an error below the resource. The engine counts the update as failed."""
        self._log(engine_pb2.ERROR, urn, message, ephemeral=False)

    def status(self, urn: str, message: str, *, warning: bool = False) -> None:
        """Show the current activity of the resource in its row of the progress display."""
        self._log(engine_pb2.WARNING if warning else engine_pb2.INFO, urn, message, ephemeral=True)

    def _log(self, severity: engine_pb2.LogSeverity.ValueType, urn: str, message: str, *, ephemeral: bool) -> None:
        if self._stub is not None:
            request = engine_pb2.LogRequest(severity=severity, urn=urn, message=message, ephemeral=ephemeral)
            self._stub.Log(request)
