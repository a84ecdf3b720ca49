"""Pulumi plugin for tests. A file of instructions says when the plugin rejects, replaces, warns or crashes.

Arguments: the path of the instructions in JSON, and the engine's address.
"""

# ruff: noqa: ARG002 - the protocol gives every method a request and a context

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import empty_pb2
from pulumi.runtime.proto import engine_pb2, engine_pb2_grpc, provider_pb2, provider_pb2_grpc

from setup.plugin_process import serve
from simulation.cloud.values import Unknown, from_wire


class ScriptedPlugin(provider_pb2_grpc.ResourceProviderServicer):
    """Plugin that accepts all inputs and plans updates, unless the instructions name the resource."""

    def __init__(self, instructions: dict[str, Any], engine: engine_pb2_grpc.EngineStub) -> None:
        self._instructions = instructions
        self._engine = engine

    def Configure(
        self, request: provider_pb2.ConfigureRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        """Write the settings and the environment to the file `seen`. Send the warning `warn`, if there is one."""
        seen = {"variables": dict(request.variables), "environment": dict(os.environ)}
        Path(self._instructions["seen"]).write_text(json.dumps(seen), encoding="utf-8")
        if "warn" in self._instructions:
            self._engine.Log(engine_pb2.LogRequest(severity=engine_pb2.WARNING, message=self._instructions["warn"]))
        return provider_pb2.ConfigureResponse()

    def Check(self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext) -> provider_pb2.CheckResponse:
        """Reject a resource that `reject` names."""
        wrong = self._instructions.get("reject", {}).get(request.name)
        failures = [provider_pb2.CheckFailure(property=wrong[0], reason=wrong[1])] if wrong else []
        return provider_pb2.CheckResponse(inputs=request.news, failures=failures)

    def Create(self, request: provider_pb2.CreateRequest, context: grpc.ServicerContext) -> provider_pb2.CreateResponse:
        """Plan a creation. End the process on a real creation, which a review must not request."""
        if not request.preview:
            os._exit(3)
        return provider_pb2.CreateResponse(properties=request.properties)

    def Diff(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        """Plan a replacement if an input in `replace` changes, else an update if any input changes.

        Crash if the input that `crash_at_unknown` names is unknown. Inputs in `compute` change in every plan, like
        values that only the cloud knows. If an input in `compute_replaces` changes, plan a replacement.
        """
        olds, news = from_wire(request.old_inputs), from_wire(request.news)
        if isinstance(news.get(self._instructions.get("crash_at_unknown", "")), Unknown):
            print("panic: can't use ElementIterator on unknown value", file=sys.stderr, flush=True)
            os._exit(2)
        changed = [key for key in sorted({*olds, *news}) if olds.get(key) != news.get(key)]
        replaces = [key for key in changed if key in self._instructions.get("replace", {}).get(request.name, [])]
        changed += [key for key in self._instructions.get("compute", {}).get(request.name, []) if key not in changed]
        replaces += [key for key in changed if key in self._instructions.get("compute_replaces", [])]
        some = provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(changes=some, diffs=changed, replaces=replaces)

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Do nothing, because no method waits."""
        return empty_pb2.Empty()


if __name__ == "__main__":
    stub = engine_pb2_grpc.EngineStub(grpc.insecure_channel(sys.argv[2]))
    servicer = ScriptedPlugin(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), stub)
    serve(lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server))
