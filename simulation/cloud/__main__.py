"""`python -m simulation.cloud PACKAGE`: the simulated provider of a Pulumi package.

Pulumi's engine starts this program and calls its gRPC service. The service passes each call to the simulated cloud.
"""

# ruff: noqa: ARG002 - the protocol gives every method a request and a context

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path

import grpc
from google.protobuf import any_pb2, empty_pb2
from google.rpc import status_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from settings.problem import dotted
from setup.plugin_process import serve
from simulation.cloud import checking
from simulation.cloud.lifecycle import Cloud, InitFailed, Rejected
from simulation.cloud.model import Properties, SimulatedResource, read_state, without_internal
from simulation.cloud.schema import UnknownType
from simulation.cloud.values import UNKNOWN, from_wire, to_wire


class SimulatedProvider(provider_pb2_grpc.ResourceProviderServicer):
    """Simulated provider of a package: `gcp`, `aws` or `docker-build`."""

    def __init__(self, package: str, cloud: Cloud) -> None:
        self._package = package
        self._cloud = cloud
        self._scope: Properties = {}
        self._tags: Properties = {}

    def Handshake(
        self, request: provider_pb2.ProviderHandshakeRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ProviderHandshakeResponse:
        """Return no optional features. The engine then sends secrets as plain values."""
        return provider_pb2.ProviderHandshakeResponse()

    def GetPluginInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        """Return the version of the installed SDK, which the real plugin would have too."""
        return plugin_pb2.PluginInfo(version=metadata.version(f"pulumi-{self._package}"))

    def GetSchema(
        self, request: provider_pb2.GetSchemaRequest, context: grpc.ServicerContext
    ) -> provider_pb2.GetSchemaResponse:
        """Return a schema without types: programs get their types from the SDK."""
        return provider_pb2.GetSchemaResponse(schema=json.dumps({"name": self._package, "version": "0.0.0"}))

    def CheckConfig(
        self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        """Accept any configuration."""
        return provider_pb2.CheckResponse(inputs=request.news)

    def DiffConfig(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        """Report changed settings. A change of project, region or zone replaces all resources."""
        olds, news = from_wire(request.olds), from_wire(request.news)
        changed = [key for key in sorted({*olds, *news}) if olds.get(key) != news.get(key)]
        replaces = [key for key in changed if key in checking.SCOPE_KEYS]
        summary = provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(changes=summary, diffs=changed, replaces=replaces)

    def Configure(
        self, request: provider_pb2.ConfigureRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        """Store the default project, region, zone and tags. Ignore credentials."""
        settings = {key.rpartition(":")[2]: value for key, value in request.variables.items()}
        self._scope = {key: settings[key] for key in checking.SCOPE_KEYS if settings.get(key)}
        self._tags = json.loads(settings.get("defaultTags") or "{}").get("tags") or {}
        return provider_pb2.ConfigureResponse(supportsPreview=True)

    def Check(self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext) -> provider_pb2.CheckResponse:
        """Fill in a resource's default inputs, and check all inputs against the provider's schema and rules."""
        with _errors_as_status(context):
            olds, news = from_wire(request.olds), from_wire(request.news)
            inputs = checking.with_defaults(
                request.type, request.urn, request.randomSeed, olds, news, self._scope, self._tags
            )
            found = checking.problems(request.type, inputs)
        return provider_pb2.CheckResponse(
            inputs=to_wire(inputs),
            failures=[provider_pb2.CheckFailure(property=dotted(each.path), reason=each.message) for each in found],
        )

    def Diff(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        """Report the inputs that change, and the changes that replace the resource."""
        olds, news = from_wire(request.old_inputs), from_wire(request.news)
        found = checking.changes(request.type, olds, news)
        if found.crash:
            context.abort(grpc.StatusCode.UNAVAILABLE, found.crash)
        summary = provider_pb2.DiffResponse.DIFF_SOME if found.changed else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(
            changes=summary,
            diffs=found.changed,
            replaces=found.replaced,
            deleteBeforeReplace=found.deletes_first,
            detailedDiff=_detailed(request.type, found),
            hasDetailedDiff=bool(found.paths),
        )

    def Create(self, request: provider_pb2.CreateRequest, context: grpc.ServicerContext) -> provider_pb2.CreateResponse:
        """Create a resource. In a preview, only return its inputs."""
        inputs = from_wire(request.properties)
        if request.preview:
            return provider_pb2.CreateResponse(properties=to_wire(without_internal(inputs)))
        with _errors_as_status(context):
            record = self._cloud.create(request.urn, request.type, inputs, request.timeout)
        return provider_pb2.CreateResponse(id=record.id, properties=to_wire(record.outputs))

    def Read(self, request: provider_pb2.ReadRequest, context: grpc.ServicerContext) -> provider_pb2.ReadResponse:
        """Read a resource for a refresh or an import."""
        record = self._cloud.read(request.type, request.id)
        if record is None:
            return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(
            id=record.id,
            properties=to_wire(record.outputs),
            inputs=to_wire(record.inputs),
        )

    def Update(self, request: provider_pb2.UpdateRequest, context: grpc.ServicerContext) -> provider_pb2.UpdateResponse:
        """Update a resource in place. In a preview, only return its expected outputs."""
        inputs = from_wire(request.news)
        if request.preview:
            old = from_wire(request.olds)
            recomputed = checking.new_outputs(request.type, from_wire(request.old_inputs), inputs)
            found = {**old, **without_internal(inputs), **dict.fromkeys(recomputed, UNKNOWN)}
            return provider_pb2.UpdateResponse(properties=to_wire(found))
        with _errors_as_status(context):
            record = self._cloud.update(request.urn, request.type, request.id, inputs)
        return provider_pb2.UpdateResponse(properties=to_wire(record.outputs))

    def Delete(self, request: provider_pb2.DeleteRequest, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Delete a resource."""
        with _errors_as_status(context):
            self._cloud.delete(request.urn, request.type, request.id)
        return empty_pb2.Empty()

    def Invoke(self, request: provider_pb2.InvokeRequest, context: grpc.ServicerContext) -> provider_pb2.InvokeResponse:
        """Reject functions such as `getAvailabilityZones`, which the program does not call."""
        context.abort(grpc.StatusCode.UNIMPLEMENTED, f"the function {request.tok} is not simulated")

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Do nothing. Running calls end by themselves."""
        return empty_pb2.Empty()


def _detailed(token: str, found: checking.Changes) -> dict[str, provider_pb2.PropertyDiff]:
    """Return the changed paths. The engine applies the option `replace_on_changes` to these paths."""
    replaced = {checking.path_outside_lists(token, each) for each in found.replaced}
    kinds = provider_pb2.PropertyDiff.Kind
    return {
        path: provider_pb2.PropertyDiff(kind=kinds.UPDATE_REPLACE if path in replaced else kinds.UPDATE, inputDiff=True)
        for path in (checking.path_outside_lists(token, each) for each in found.paths)
    }


@contextmanager
def _errors_as_status(context: grpc.ServicerContext) -> Iterator[None]:
    try:
        yield
    except InitFailed as failure:
        _abort_with_state(context, failure.reason, failure.record)
    except (Rejected, UnknownType) as error:
        context.abort(grpc.StatusCode.UNKNOWN, str(error))


def _abort_with_state(context: grpc.ServicerContext, reason: str, record: SimulatedResource) -> None:
    """Fail the call, but return the resource. The engine saves the resource, and the next update checks it again."""
    detail = any_pb2.Any()
    detail.Pack(
        provider_pb2.ErrorResourceInitFailed(
            id=record.id,
            properties=to_wire(record.outputs),
            inputs=to_wire(record.inputs),
            reasons=[reason],
        )
    )
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=reason, details=[detail])
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, reason)


FOLDER_VARIABLE = "TRAINYARD_REHEARSAL"
"""Environment variable with the folder of the rehearsal, which contains the state of the simulated cloud."""


def main(package: str) -> None:
    """Serve until the engine ends this process."""
    folder = Path(os.environ[FOLDER_VARIABLE])
    effects = None
    if read_state(folder).settings.get("endpoint"):
        from simulation.cluster.effects import ClusterEffects

        effects = ClusterEffects(folder)
    provider = SimulatedProvider(package, Cloud(folder, effects))
    serve(lambda server: provider_pb2_grpc.add_ResourceProviderServicer_to_server(provider, server))


if __name__ == "__main__":
    main(sys.argv[1])
