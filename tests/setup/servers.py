"""HTTP servers of the tests in this folder."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, HTTPServer, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Quiet(BaseHTTPRequestHandler):
    """Handler that logs no requests."""

    def log_message(self, *_words: object) -> None:
        """Print nothing."""


class _Files(Quiet, SimpleHTTPRequestHandler):
    """Handler that serves the files of a folder."""


@contextmanager
def serving(server: HTTPServer) -> Iterator[str]:
    """Answer requests in a thread. Yield the server's URL, and stop the server afterwards."""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def file_server(folder: Path) -> HTTPServer:
    """Return a server of a folder's files."""
    return ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, directory=str(folder)))
