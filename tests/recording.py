"""RecordingEngine: Pulumi mocks that keep what a program registers, so that tests ask about it as plain values."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pulumi
from pulumi.runtime.mocks import MockCallArgs, MockResourceArgs, Mocks

LOCAL_CLUSTER = {
    "uid": "0123456789abcdef",
    "kubeconfig": "apiVersion: v1",
    "kubeconfig_path": "/cluster/admin.kubeconfig",
    "bucket_path": "/cluster/bucket",
    "bucket_volume": "trainyard-bucket",
    "node_names": ["local-0", "local-1"],
}
"""What the local cluster's resource answers."""


@dataclass(frozen=True)
class Record:
    """One registered resource."""

    type: str
    name: str
    inputs: dict[str, Any]
    custom: bool
    deleted_with: str
    provider: str


@dataclass
class RecordingEngine(Mocks):
    """Accepts every resource as it is."""

    records: list[Record] = field(default_factory=list)

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        """Keep the resource; it gets its inputs as outputs."""
        request = args.resource_register_request
        deleted_with = request.deletedWith if request else ""
        record = Record(args.typ, args.name, args.inputs, bool(args.custom), deleted_with, args.provider or "")
        self.records.append(record)
        outputs = {**args.inputs, **(LOCAL_CLUSTER if args.typ.startswith("pulumi-python:dynamic") else {})}
        return f"{args.name}-id", outputs

    def call(self, args: MockCallArgs) -> dict[str, Any]:
        """No program here calls a provider's function."""
        raise NotImplementedError(args.token)

    def of_type(self, suffix: str) -> list[Record]:
        """The records whose type ends with `suffix`."""
        return [record for record in self.records if record.type.endswith(suffix)]


def run(program: Callable[[], Any], *, preview: bool = False) -> RecordingEngine:
    """Run a program against a new engine until all that it registered is resolved."""
    engine = RecordingEngine()
    pulumi.runtime.set_mocks(engine, project="trainyard", stack="test", preview=preview)

    @pulumi.runtime.test
    def wrapped() -> Any:
        return program()

    wrapped()
    return engine
