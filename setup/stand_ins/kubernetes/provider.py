"""The provider's service: Pulumi's requests in, answers and errors out. What happens in between is elsewhere."""

# ruff: noqa: ARG002 - the protocol gives every method a request and a context

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import grpc
import yaml
from google.protobuf import any_pb2, empty_pb2
from google.rpc import status_pb2
from pulumi.runtime.proto import plugin_pb2, provider_pb2, provider_pb2_grpc

from setup.stand_ins.kubernetes import checking, configuration, lifecycle, planning
from setup.stand_ins.kubernetes.api import ApiError, Unreachable
from setup.stand_ins.kubernetes.decode_yaml import decode
from setup.stand_ins.kubernetes.discovery import NoSuchKind
from setup.stand_ins.kubernetes.lifecycle import InitializationFailed, Outcome
from setup.stand_ins.kubernetes.naming import NamingDisabled
from setup.stand_ins.kubernetes.operation import OperationFailed
from setup.stand_ins.kubernetes.session import REFUSED, Session
from setup.stand_ins.kubernetes.values import from_wire, reveal, to_wire
from setup.stand_ins.protocol import Engine

EXPECTED = (OperationFailed, NamingDisabled, ApiError, NoSuchKind, Unreachable, ValueError, yaml.YAMLError)
"""Errors whose message is for the user; any other is a mistake in this program and shows as such."""


class KubernetesProvider(provider_pb2_grpc.ResourceProviderServicer):
    """One provider process: configured once, then asked from many threads."""

    def __init__(self, engine_address: str) -> None:
        self._engine = Engine(engine_address)
        self._session: Session | None = None
        self._cancelled = threading.Event()

    @property
    def session(self) -> Session:
        """The configured session; the engine configures before it asks for anything that needs it."""
        if self._session is None:
            raise OperationFailed("the provider has not been configured")
        return self._session

    def Handshake(
        self, request: provider_pb2.ProviderHandshakeRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ProviderHandshakeResponse:
        """Learn the engine's address and say what this provider understands."""
        self._engine = Engine(request.engine_address)
        return provider_pb2.ProviderHandshakeResponse(accept_secrets=True, supports_autonaming_configuration=True)

    def Attach(self, request: plugin_pb2.PluginAttach, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Learn the address of another engine."""
        self._engine = Engine(request.address)
        return empty_pb2.Empty()

    def GetPluginInfo(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> plugin_pb2.PluginInfo:
        """Say the version of the SDK beside it, whose plugin this one stands in for."""
        sdk = find_spec("pulumi_kubernetes")
        if sdk is None or sdk.origin is None:
            raise ImportError("pulumi_kubernetes is not installed in this environment")
        plugin = json.loads(Path(sdk.origin).with_name("pulumi-plugin.json").read_text(encoding="utf-8"))
        return plugin_pb2.PluginInfo(version=plugin["version"])

    def GetSchema(
        self, request: provider_pb2.GetSchemaRequest, context: grpc.ServicerContext
    ) -> provider_pb2.GetSchemaResponse:
        """Name the package and no types: programs have them from their SDK."""
        return provider_pb2.GetSchemaResponse(schema=json.dumps({"name": "kubernetes", "version": "0.0.0"}))

    def CheckConfig(
        self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext
    ) -> provider_pb2.CheckResponse:
        """Refuse settings that this provider would have to ignore."""
        failures = configuration.check(reveal(from_wire(request.news)))
        return provider_pb2.CheckResponse(
            inputs=request.news,
            failures=[provider_pb2.CheckFailure(property=name, reason=reason) for name, reason in failures],
        )

    def DiffConfig(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        """Tell whether the settings mean another cluster."""
        diffs, replaces = configuration.diff(reveal(from_wire(request.olds)), reveal(from_wire(request.news)))
        changes = provider_pb2.DiffResponse.DIFF_SOME if diffs else provider_pb2.DiffResponse.DIFF_NONE
        return provider_pb2.DiffResponse(changes=changes, diffs=diffs, replaces=replaces)

    def Configure(
        self, request: provider_pb2.ConfigureRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConfigureResponse:
        """Read the settings and reach for the cluster."""
        with _told_to_the_user(context):
            settings = configuration.read(request.variables, accept_secrets=request.acceptSecrets)
            self._session = Session(settings, self._engine, self._cancelled)
        return provider_pb2.ConfigureResponse(
            acceptSecrets=True, supportsPreview=True, supports_autonaming_configuration=True
        )

    def Check(self, request: provider_pb2.CheckRequest, context: grpc.ServicerContext) -> provider_pb2.CheckResponse:
        """Complete and check a resource's inputs."""
        with _told_to_the_user(context):
            settings = self.session.settings
            if settings.api is None and settings.skip_update_unreachable:
                self._engine.warning(
                    request.urn,
                    "Cluster is unreachable but skipUpdateUnreachable flag is set to true, skipping...",
                )
                return provider_pb2.CheckResponse(inputs=request.olds)
            inputs = checking.check(self.session, request, from_wire(request.olds), from_wire(request.news))
        return provider_pb2.CheckResponse(inputs=self._wire(inputs))

    def Diff(self, request: provider_pb2.DiffRequest, context: grpc.ServicerContext) -> provider_pb2.DiffResponse:
        """Tell what an update would change."""
        with _told_to_the_user(context):
            olds, news = from_wire(request.olds), from_wire(request.news)
            plan = planning.plan(self.session, request.urn, olds, news, list(request.ignoreChanges))
        changed = plan.differences or plan.replaces
        return provider_pb2.DiffResponse(
            changes=provider_pb2.DiffResponse.DIFF_SOME if changed else provider_pb2.DiffResponse.DIFF_NONE,
            replaces=plan.replaces,
            deleteBeforeReplace=plan.delete_first,
            detailedDiff=plan.differences,
            hasDetailedDiff=True,
        )

    def Create(self, request: provider_pb2.CreateRequest, context: grpc.ServicerContext) -> provider_pb2.CreateResponse:
        """Create an object, or preview that."""
        with _told_to_the_user(context, self._wire):
            outcome = lifecycle.create(self.session, request, from_wire(request.properties))
        return provider_pb2.CreateResponse(id=outcome.id, properties=self._wire(outcome.state))

    def Read(self, request: provider_pb2.ReadRequest, context: grpc.ServicerContext) -> provider_pb2.ReadResponse:
        """Read an object for a refresh or an import."""
        with _told_to_the_user(context, self._wire):
            olds, inputs = from_wire(request.properties), from_wire(request.inputs)
            outcome = lifecycle.read(self.session, request, olds, inputs)
        if not outcome.id:
            return provider_pb2.ReadResponse()
        return provider_pb2.ReadResponse(
            id=outcome.id, properties=self._wire(outcome.state), inputs=self._wire(outcome.inputs or {})
        )

    def Update(self, request: provider_pb2.UpdateRequest, context: grpc.ServicerContext) -> provider_pb2.UpdateResponse:
        """Update an object, or preview that."""
        with _told_to_the_user(context, self._wire):
            outcome = lifecycle.update(self.session, request, from_wire(request.olds), from_wire(request.news))
        return provider_pb2.UpdateResponse(properties=self._wire(outcome.state))

    def Delete(self, request: provider_pb2.DeleteRequest, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """Delete an object."""
        with _told_to_the_user(context, self._wire):
            lifecycle.delete(self.session, request, from_wire(request.properties))
        return empty_pb2.Empty()

    def Invoke(self, request: provider_pb2.InvokeRequest, context: grpc.ServicerContext) -> provider_pb2.InvokeResponse:
        """Decode YAML manifests, the one function that is served."""
        with _told_to_the_user(context):
            if request.tok != "kubernetes:yaml:decode":
                raise OperationFailed(REFUSED.format(what=f"the function {request.tok}"))
            arguments = reveal(from_wire(request.args))
            if not isinstance(arguments.get("text"), str):
                raise OperationFailed("missing required field 'text' of type string")
            manifests = decode(arguments["text"], arguments.get("defaultNamespace") or "", self.session.discovery)
        response = provider_pb2.InvokeResponse()
        getattr(response, "return").CopyFrom(to_wire({"result": manifests}, keep_secrets=False))
        return response

    def Construct(
        self, request: provider_pb2.ConstructRequest, context: grpc.ServicerContext
    ) -> provider_pb2.ConstructResponse:
        """Refuse components: a program that uses pulumi_kubernetes.yaml (not yaml.v2) needs none."""
        context.abort(grpc.StatusCode.UNIMPLEMENTED, REFUSED.format(what=f"the component {request.type}"))
        raise AssertionError("abort raises")

    def Cancel(self, request: empty_pb2.Empty, context: grpc.ServicerContext) -> empty_pb2.Empty:
        """End all waiting: the user has interrupted the update."""
        self._cancelled.set()
        return empty_pb2.Empty()

    def _wire(self, properties: dict[str, Any]) -> Any:
        return to_wire(properties, keep_secrets=self.session.settings.accept_secrets)


@contextmanager
def _told_to_the_user(context: grpc.ServicerContext, wire: Any = None) -> Iterator[None]:
    """Answer a call that fails with the message for the user and, if the object is there, with its state."""
    try:
        yield
    except InitializationFailed as failure:
        _abort_with_state(context, failure, failure.outcome, wire)
    except EXPECTED as error:
        context.abort(grpc.StatusCode.UNKNOWN, str(error))


def _abort_with_state(
    context: grpc.ServicerContext, failure: InitializationFailed, outcome: Outcome, wire: Any
) -> None:
    detail = any_pb2.Any()
    detail.Pack(
        provider_pb2.ErrorResourceInitFailed(
            id=outcome.id,
            properties=wire(outcome.state),
            inputs=wire(outcome.inputs) if outcome.inputs is not None else None,
            reasons=failure.reasons,
        )
    )
    status = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=str(failure), details=[detail])
    context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
    context.abort(grpc.StatusCode.UNKNOWN, str(failure))
