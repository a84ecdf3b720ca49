"""Recording engine of `commands.review`, with lookups for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pulumi.runtime import rpc
from pulumi.runtime.proto import resource_pb2

from commands.review import recorded
from commands.review.recorded import LOCAL_CLUSTER, Record

__all__ = ["LOCAL_CLUSTER", "Record", "RecordingEngine", "plain", "run"]


class RecordingEngine(recorded.RecordingEngine):
    """Recording engine whose records tests look up by type and name."""

    @property
    def requests(self) -> Mapping[str, resource_pb2.RegisterResourceRequest]:
        """Registration requests by resource name. If several resources share a name, the last one wins."""
        return {each.name: each for each in self.registered}

    def job_pod(self) -> dict[str, Any]:
        """Return the pod specification of the only Job."""
        (record,) = self.of_type("batch/v1:Job")
        pod: dict[str, Any] = record.inputs["spec"]["template"]["spec"]
        return pod

    def of_type(self, suffix: str) -> list[Record]:
        """Return the records whose type ends with `suffix`."""
        return [record for record in self.records if record.type.endswith(suffix)]

    def dependencies(self, name: str) -> set[str]:
        """Return the names of the resources that a resource depends on."""
        return {urn.rpartition("::")[2] for urn in self.requests[name].dependencies}

    def manifests(self) -> list[dict[str, Any]]:
        """Return the Kubernetes objects that the API server would receive, in a stable order."""
        kubernetes = [record for record in self.records if record.type.startswith("kubernetes:")]
        return [plain(record.inputs) for record in sorted(kubernetes, key=lambda record: (record.type, record.name))]


def run(program: Callable[[], Any], engine: RecordingEngine | None = None) -> RecordingEngine:
    """Run a program with an engine (by default a new one) until every registration is resolved."""
    engine = engine or RecordingEngine()
    recorded.run(program, engine)
    return engine


def plain(value: Any) -> Any:
    """Return `value` without the marks of secrets, and with whole floats as integers.

    The engine's protocol has only floats.
    """
    if isinstance(value, dict):
        if value.get(rpc._special_sig_key) == rpc._special_secret_sig:
            return plain(value["value"])
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
