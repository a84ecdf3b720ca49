"""Proxy between a client and an object store. It fails requests as a real store does."""

from __future__ import annotations

import http.client
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import quote, unquote, urlsplit, urlunsplit

ANY_SIGNATURE = "AWS4-HMAC-SHA256 Credential=any/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
"""Signature for the store, which requires one but does not check it. Google's client sends a token instead."""
SLOW_SECONDS = 1.0
"""Delay of a slow answer in seconds."""
TRICKLE_SECONDS = 35.0
"""Duration of a trickling answer in seconds. By default obstore's time-out is 30 seconds."""
REPLACED_HEADERS = frozenset(
    {"connection", "transfer-encoding", "content-length", "host", "authorization", "date", "server"}
)
"""Headers that the proxy does not forward, because each connection has its own."""


class Fault(Enum):
    """Faults of a request. A number is the status of the answer."""

    TOO_MANY = 429
    UNAVAILABLE = 503
    FORBIDDEN = 403
    SLOW = "slow"
    TRICKLE = "trickle"
    """The answer arrives byte by byte."""
    HALF = "half"
    """The connection ends in the middle of the request's body, or of the answer if the request has no body."""


class Proxy:
    """Proxy of one test in front of a store."""

    def __init__(self, store_port: int) -> None:
        self.store_port = store_port
        self.fault: Callable[[str, str], Fault | None] = lambda _method, _path: None
        """Function of a request's method and path. It returns the fault of the request, or None."""
        self.requests: list[tuple[str, str, Fault | None]] = []
        """Method, path and fault of each request."""
        self._server = _Server(self)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    def faults(self) -> int:
        """Return the number of requests with a fault."""
        return sum(fault is not None for _, _, fault in self.requests)


def on_first_requests(kind: Fault) -> Callable[[str, str], Fault | None]:
    """Return a function for `Proxy.fault`: the first request of each method and path has this fault."""
    seen = set[tuple[str, str]]()
    lock = threading.Lock()

    def fault(method: str, path: str) -> Fault | None:
        with lock:
            is_first = (method, path) not in seen
            seen.add((method, path))
            return kind if is_first else None

    return fault


class _Server(ThreadingHTTPServer):
    """HTTP server of a proxy. It handles each connection in a thread."""

    daemon_threads = True

    def __init__(self, proxy: Proxy) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.proxy = proxy


class _Handler(BaseHTTPRequestHandler):
    """Handler of the requests to a proxy."""

    server: _Server
    protocol_version = "HTTP/1.1"

    def log_message(self, *_words: object) -> None:
        """Print nothing."""

    def answer(self) -> None:
        fault = self.server.proxy.fault(self.command, urlsplit(self.path).path)
        self.server.proxy.requests.append((self.command, self.path, fault))
        size = int(self.headers.get("Content-Length", 0))
        if fault is Fault.HALF and size:
            self.rfile.read(size // 2)
            self.close_connection = True
            return
        body = self.rfile.read(size)
        if fault and isinstance(fault.value, int):
            self._send(fault.value, {"Content-Type": "text/plain"}, b"not now")
            return
        if fault is Fault.SLOW:
            time.sleep(SLOW_SECONDS)
        if self.command == "DELETE" and self._forward("HEAD", self.path, b"")[0] == HTTPStatus.NOT_FOUND:
            # Answer as Google does. S3 answers 204. https://cloud.google.com/storage/docs/xml-api/delete-object
            self._send(HTTPStatus.NOT_FOUND, {}, b"")
            return
        status, headers, content = self._forward(self.command, self.path, body)
        self._send(status, headers, content, fault)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = answer

    def _forward(self, method: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.proxy.store_port, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in REPLACED_HEADERS}
        # Escape as S3 clients do. Google's client escapes more characters.
        address = urlsplit(path)
        path = urlunsplit(address._replace(path=quote(unquote(address.path))))
        connection.request(method, path, body, {**headers, "Authorization": ANY_SIGNATURE})
        reply = connection.getresponse()
        content = reply.read()
        reply_headers = {name: value for name, value in reply.getheaders() if name.lower() not in REPLACED_HEADERS}
        if method == "HEAD":
            reply_headers["Content-Length"] = reply.headers["Content-Length"] or "0"
        connection.close()
        return reply.status, reply_headers, content

    def _send(self, status: int, headers: dict[str, str], content: bytes, fault: Fault | None = None) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        # The client may have closed the connection.
        with suppress(BrokenPipeError, ConnectionResetError):
            if fault is Fault.TRICKLE:
                for byte in content:
                    self.wfile.write(bytes([byte]))
                    time.sleep(TRICKLE_SECONDS / len(content))
            else:
                self.wfile.write(content[: len(content) // 2] if fault is Fault.HALF else content)
        if fault is Fault.HALF:
            self.close_connection = True
