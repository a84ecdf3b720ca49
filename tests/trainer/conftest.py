"""Fixtures of the trainer's tests: digits, and buckets behind a proxy."""

from __future__ import annotations

import gzip
import http.client
import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from simulation.object_store import SETTINGS_KEY, running
from tests.stores.proxy import Proxy
from trainer.config import parse
from trainer.runtime import Runtime, start_runtime

ALL = os.environ.get("TRAINYARD_ALL_FAULTS") == "1"
SEEDS, LEAVES, CLEAN = (20, 20, 10) if ALL else (2, 4, 1)
"""Numbers of runs with killed ranks, with preempted ranks, and without faults."""
KILLS = 2
"""Number of kills in such a run."""
DATA = Path(__file__).parent / "data"
NUMBERS = count()


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of 500 real digits in IDX files."""
    folder = tmp_path_factory.mktemp("digits")
    for packed in DATA.glob("*.gz"):
        (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


@pytest.fixture(scope="session")
def store() -> Iterator[int]:
    """Port of an S3 server."""
    with running("s3") as server:
        yield int(server[SETTINGS_KEY]["port"])


@pytest.fixture
def proxy(store: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy in front of the store, which the clients of both clouds use."""
    with Proxy(store) as found:
        account = tmp_path / "account.json"
        keys = ("client_email", "private_key", "private_key_id")
        account.write_text(json.dumps({"gcs_base_url": found.url, "disable_oauth": True} | dict.fromkeys(keys, "")))
        for name, value in {
            "GOOGLE_SERVICE_ACCOUNT": str(account),
            "AWS_ENDPOINT_URL": found.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        yield found


@pytest.fixture(params=["s3", "gs"])
def bucket(request: pytest.FixtureRequest, proxy: Proxy) -> str:
    """URL of a new bucket."""
    name = f"bucket-{next(NUMBERS)}"
    connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"))
    connection.request("PUT", f"/{name}")
    assert connection.getresponse().status == 200
    connection.close()
    proxy.requests.clear()
    return f"{request.param}://{name}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report which faults were not tried."""
    if not ALL and any("test_faults" in report.nodeid for report in terminalreporter.getreports("passed")):
        terminalreporter.write_line(
            f"trainer faults: {SEEDS} of 20 seeds of kills, {LEAVES} of 20 leaves and {CLEAN} of 10 runs without a "
            "false alarm were tried; the others are NOT RUN (TRAINYARD_ALL_FAULTS=1 tries all)"
        )


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    """This process as the only rank."""
    return start_runtime(parse(["digits", "--device=cpu"]))
