"""Buckets of the simulated clouds are in real object stores, which reject the deletion of a bucket with objects."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from setup.go_programs import GCS_SERVER, build_all, remove_objects
from simulation.cloud.lifecycle import Cloud, Rejected
from simulation.cloud.model import new_state
from simulation.cluster.effects import ClusterEffects
from simulation.object_store import ObjectStore, StoreError, running, store_of

TYPES = {"gs": "gcp:storage/bucket:Bucket", "s3": "aws:s3/bucket:Bucket"}
INPUTS: dict[str, dict[str, Any]] = {
    "gs": {"name": "checkpoints", "project": "some-project", "location": "us-central1"},
    "s3": {"bucket": "checkpoints", "region": "us-west-2"},
}

# The first run on a machine builds one of the two stores.
pytestmark = pytest.mark.timeout(2400)


class Buckets:
    """Simulated cloud whose buckets are in a separate object store."""

    def __init__(self, kind: str, folder: Path, settings: dict[str, Any]) -> None:
        self.kind = kind
        new_state(folder, settings=settings)
        self.cloud = Cloud(folder, ClusterEffects(folder))
        if kind == "gs":
            api = {"project": "some-project", "service": "storage.googleapis.com"}
            self.cloud.create("urn:api", "gcp:projects/service:Service", api)
        store = store_of(settings)
        assert store is not None
        self.store: ObjectStore = store

    def create(self, **inputs: Any) -> str:
        """Create a bucket and return its id."""
        return self.cloud.create("urn:bucket", TYPES[self.kind], {**INPUTS[self.kind], **inputs}).id

    def delete(self, id_: str) -> None:
        """Delete a bucket."""
        self.cloud.delete("urn:bucket", TYPES[self.kind], id_)


@pytest.fixture(params=["gs", "s3"])
def buckets(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Buckets]:
    """Yield a cloud of each kind without a bucket. A request through the environment's proxy would fail."""
    if request.param == "gs":
        build_all([GCS_SERVER])
        remove_objects()
    with running(request.param) as settings:
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
        yield Buckets(request.param, tmp_path, settings)


def test_delete_bucket_with_objects_is_rejected(buckets: Buckets) -> None:
    id_ = buckets.create()
    buckets.store.write(id_, "jobs/resnet/checkpoints/step-1/checkpoint.json")
    with pytest.raises(Rejected, match=r"(?i)empty"):
        buckets.delete(id_)
    assert buckets.store.keys(id_) == ["jobs/resnet/checkpoints/step-1/checkpoint.json"]
    buckets.store.clear(id_)
    buckets.delete(id_)
    assert buckets.store.buckets() == []


def test_delete_bucket_with_force_destroy_deletes_its_objects(buckets: Buckets) -> None:
    id_ = buckets.create(forceDestroy=True)
    for _ in range(2):  # In a versioned bucket, the second write adds a version.
        buckets.store.write(id_, "a/b c")
    buckets.delete(id_)
    assert buckets.store.buckets() == []


def test_write_to_a_missing_bucket_fails(buckets: Buckets) -> None:
    with pytest.raises(StoreError, match="404"):
        buckets.store.write("nowhere", "key")


def test_update_bucket_keeps_its_objects(buckets: Buckets) -> None:
    id_ = buckets.create()
    buckets.store.write(id_, "key")
    buckets.cloud.update("urn:bucket", TYPES[buckets.kind], id_, {**INPUTS[buckets.kind], "forceDestroy": True})
    assert buckets.store.keys(id_) == ["key"]
