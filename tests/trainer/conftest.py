"""Fixtures of the tests of the trainer: digits, recipes, buckets behind a proxy, and a runtime with one rank."""

from __future__ import annotations

import gzip
import http.client
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from simulation.object_store import SETTINGS_KEY, running
from tests.trainer.proxy import Proxy
from tests.trainer.recipes import Recipe, digits_recipe, language_recipe
from trainer.config import parse
from trainer.runtime import Runtime, start_runtime

DIGITS = Path(__file__).parent / "data"
BUCKET_NUMBERS = count()


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of 500 real digits in IDX files."""
    folder = tmp_path_factory.mktemp("digits")
    for packed in DIGITS.glob("*.gz"):
        (folder / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    return folder


@pytest.fixture(scope="session")
def both_recipes(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Recipe]:
    return {"digits": digits_recipe(digits), "language": language_recipe(tmp_path_factory.mktemp("language"))}


@pytest.fixture(params=["digits", "language"])
def recipe(request: pytest.FixtureRequest, both_recipes: dict[str, Recipe]) -> Recipe:
    """Return a recipe. A test that uses this fixture runs once with each recipe."""
    return both_recipes[request.param]


@pytest.fixture(scope="session")
def store_port() -> Iterator[int]:
    """Yield the port of an S3 server."""
    with running("s3") as server:
        yield server[SETTINGS_KEY]["port"]


@pytest.fixture
def proxy(store_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Yield a proxy in front of the S3 server. Set the environment so that clients of both clouds use the proxy."""
    with Proxy(store_port) as proxy:
        account_file = tmp_path / "account.json"
        keys = ("client_email", "private_key", "private_key_id")
        account = {"gcs_base_url": proxy.url, "disable_oauth": True} | dict.fromkeys(keys, "")
        account_file.write_text(json.dumps(account))
        for name, value in {
            "GOOGLE_SERVICE_ACCOUNT": str(account_file),
            "AWS_ENDPOINT_URL": proxy.url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "any",
            "AWS_SECRET_ACCESS_KEY": "any",
            "AWS_REGION": "us-east-1",
        }.items():
            monkeypatch.setenv(name, value)
        yield proxy


@pytest.fixture(params=["s3", "gs"])
def bucket(request: pytest.FixtureRequest, proxy: Proxy) -> str:
    """Return the URL of a new bucket. A test that uses this fixture runs once with s3:// and once with gs://."""
    name = f"bucket-{next(BUCKET_NUMBERS)}"
    connection = http.client.HTTPConnection(proxy.url.removeprefix("http://"))
    connection.request("PUT", f"/{name}")
    assert connection.getresponse().status == 200
    connection.close()
    proxy.requests.clear()
    return f"{request.param}://{name}"


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    """Return the runtime of this process, the only rank."""
    return start_runtime(parse(["digits", "--device=cpu"]))
