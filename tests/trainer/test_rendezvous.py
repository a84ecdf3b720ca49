"""The launcher reopens a closed rendezvous in etcd. These tests emulate etcd; tests/end_to_end uses a real one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from bench.measure import free_port
from trainer.launch import reopen

KEY = "/torchelastic/p2p/run_job-1/rdzv/active_version"
INDEX = 7
"""Index of the key when the launcher reads it. Tests set `EtcdServer.index` to another value if the key has changed."""
NOT_FOUND, COMPARE_FAILED = 100, 101
"""Codes of https://etcd.io/docs/v2.3/errorcode/."""


class EtcdServer(ThreadingHTTPServer):
    """Server for two requests of etcd's v2 API: read a key, and delete a key if its index matches."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), EtcdHandler)
        self.values: dict[str, str] = {}
        self.index = INDEX


class EtcdHandler(BaseHTTPRequestHandler):
    """Handler of the requests to an EtcdServer."""

    server: EtcdServer

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        key = address.path.removeprefix("/v2/keys")
        if key not in self.server.values:
            self.answer(HTTPStatus.NOT_FOUND, {"errorCode": NOT_FOUND, "message": "Key not found", "cause": key})
            return
        node = {"key": key, "value": self.server.values[key], "modifiedIndex": INDEX, "createdIndex": INDEX}
        if self.command == "DELETE":
            if parse_qs(address.query) != {"prevIndex": [str(self.server.index)]}:
                self.answer(HTTPStatus.PRECONDITION_FAILED, {"errorCode": COMPARE_FAILED, "message": "Compare failed"})
                return
            del self.server.values[key]
        self.answer(HTTPStatus.OK, {"action": self.command.lower(), "node": node})

    do_DELETE = do_GET

    def answer(self, status: HTTPStatus, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Etcd-Index", str(self.server.index))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_words: object) -> None:
        """Log nothing."""


@pytest.fixture
def etcd() -> Iterator[EtcdServer]:
    with EtcdServer() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def test_closed_rendezvous_is_reopened(etcd: EtcdServer) -> None:
    etcd.values = {KEY: json.dumps({"status": "closed", "version": "3"}), f"{KEY}-other": "kept"}
    assert reopen(f"127.0.0.1:{etcd.server_port}", "job-1")
    assert list(etcd.values) == [f"{KEY}-other"]


def test_open_rendezvous_is_kept(etcd: EtcdServer) -> None:
    etcd.values = {KEY: json.dumps({"status": "final", "version": "3"})}
    assert not reopen(f"127.0.0.1:{etcd.server_port}", "job-1")
    assert list(etcd.values) == [KEY]


def test_rendezvous_reopened_by_another_host_is_kept(etcd: EtcdServer) -> None:
    etcd.values = {KEY: json.dumps({"status": "closed", "version": "3"})}
    etcd.index = INDEX + 1
    assert not reopen(f"127.0.0.1:{etcd.server_port}", "job-1")
    assert list(etcd.values) == [KEY]


def test_reopen_without_rendezvous_or_etcd_returns_false(etcd: EtcdServer) -> None:
    assert not reopen(f"127.0.0.1:{etcd.server_port}", "job-1")
    assert not reopen(f"127.0.0.1:{free_port()}", "job-1")
