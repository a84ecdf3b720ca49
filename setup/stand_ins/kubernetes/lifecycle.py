"""Create, read, update, delete: from a resource's properties to the cluster and back to its state."""

import copy
from dataclasses import dataclass

from pulumi.runtime.proto import provider_pb2

from setup.stand_ins.kubernetes import apply
from setup.stand_ins.kubernetes.annotations import LAST_APPLIED
from setup.stand_ins.kubernetes.api import ApiError
from setup.stand_ins.kubernetes.discovery import NoSuchKind, is_built_in
from setup.stand_ins.kubernetes.naming import field_manager
from setup.stand_ins.kubernetes.normalize import READ_ONLY_METADATA, normalize
from setup.stand_ins.kubernetes.objects import (
    Object,
    identifier,
    is_patch_resource,
    kind_of,
    kind_of_type,
    metadata_of,
    name_of,
    namespace_of,
    prune,
    set_metadata,
    split_identifier,
)
from setup.stand_ins.kubernetes.operation import OperationFailed, PartialFailure
from setup.stand_ins.kubernetes.session import REMOVE_UNREACHABLE, Session
from setup.stand_ins.kubernetes.state import checkpoint, initial_api_version, mark_secrets, parse, to_manifest
from setup.stand_ins.kubernetes.values import has_unknown

REVISION = "deployment.kubernetes.io/revision"


@dataclass
class Outcome:
    """What the engine puts into the state; an empty id says that there is no such object."""

    id: str
    state: Object
    inputs: Object | None = None


class InitializationFailed(Exception):
    """The object goes into the state, marked as not ready for these reasons."""

    def __init__(self, message: str, outcome: Outcome, reasons: list[str]) -> None:
        super().__init__(message)
        self.outcome = outcome
        self.reasons = [message, *reasons]


def create(session: Session, request: provider_pb2.CreateRequest, news: Object) -> Outcome:
    """Create the object; in a preview, ask the server what it would be, or return the inputs where that cannot be."""
    urn, preview = request.urn, request.preview
    inputs = to_manifest(news)
    kind = kind_of(inputs)
    if preview and (
        not session.settings.server_side
        or is_patch_resource(urn, kind.kind)
        or has_unknown(inputs)
        or not session.serves(kind)
    ):
        return Outcome("", news)
    manager = field_manager({}, inputs, server_side=session.settings.server_side)
    operation = session.operation(urn, manager)
    failure: PartialFailure | None = None
    try:
        if preview:
            live = apply.preview_create(operation, inputs)
            live.pop("status", None)
        else:
            live = apply.create(operation, inputs, request.timeout)
    except apply.PreviewImpossible:
        return Outcome("", news)
    except NoSuchKind as error:
        raise OperationFailed(
            f'creation of resource "{urn}" with kind {kind.api_version}/{kind.kind} failed because the Kubernetes API '
            "server reported that the apiVersion for this resource does not exist. Verify that any required CRDs have "
            f"been created: {error}"
        ) from error
    except (ApiError, OperationFailed) as error:
        if preview and isinstance(error, ApiError) and _tells_nothing(error):
            return Outcome("", news)
        raise OperationFailed(
            f'resource "{urn}" was not successfully created by the Kubernetes API server: {error}'
        ) from error
    except PartialFailure as error:
        failure, live = error, error.live or {}
    outcome = Outcome(
        "" if preview else identifier(live),
        checkpoint(inputs, live, news, api_version=str(inputs.get("apiVersion")), manager=manager),
    )
    if failure is not None:
        raise InitializationFailed(
            f'resource "{urn}" was successfully created, but the Kubernetes API server reported that it failed to '
            f"fully initialize or become live: {failure}",
            outcome,
            failure.reasons,
        ) from failure
    return outcome


def _tells_nothing(error: ApiError) -> bool:
    """Whether a dry run was refused for what a real run may well do: no right to it, or the old object in its place."""
    return error.code == 403 or error.reason == "AlreadyExists" or "does not support dry run" in str(error)


def update(session: Session, request: provider_pb2.UpdateRequest, olds: Object, news: Object) -> Outcome:
    """Update the object, or ask the server what would become of it."""
    urn = request.urn
    inputs = normalize(to_manifest(news))
    if request.preview and (has_unknown(inputs) or not session.serves(kind_of(inputs))):
        return Outcome(request.id, news)
    old_inputs, old_live = parse(olds)
    apply.forget_last_applied(old_inputs, old_live)
    pruned = prune(old_live, normalize(old_inputs))
    server_side = session.settings.server_side
    old_manager, manager = (field_manager(olds, each, server_side=server_side) for each in (old_inputs, inputs))
    operation = session.operation(urn, manager)
    ignored = list(request.ignoreChanges)
    failure: Exception | None = None
    try:
        if request.preview:
            live = apply.preview_update(operation, inputs, pruned, old_live, ignored)
        else:
            live = apply.update(operation, inputs, pruned, old_live, ignored, request.timeout)
    except NoSuchKind as error:
        raise OperationFailed(
            f'update of resource "{urn}" failed because the Kubernetes API server reported that the apiVersion for '
            f"this resource does not exist. Verify that any required CRDs have been created: {error}"
        ) from error
    except (ApiError, OperationFailed, PartialFailure) as error:
        if request.preview and isinstance(error, ApiError) and error.code == 403:
            return Outcome(request.id, news)
        failure = error
        try:
            live = operation.cluster.get(old_live)
        except ApiError as unread:
            raise OperationFailed(
                f'update of resource "{urn}" failed: {error}\nunable to get cluster state: {unread}'
            ) from error
    version = initial_api_version(olds, old_inputs)
    outcome = Outcome(request.id, checkpoint(inputs, live, news, api_version=version, manager=manager))
    if failure is not None:
        reasons = failure.reasons if isinstance(failure, PartialFailure) else []
        raise InitializationFailed(
            f'the Kubernetes API server reported that "{identifier(live)}" failed to fully initialize or become live: '
            f"{failure}",
            outcome,
            reasons,
        ) from failure
    if server_side and not request.preview and old_manager != manager:
        operation.cluster.relinquish(live, manager=old_manager)
    return outcome


def read(session: Session, request: provider_pb2.ReadRequest, olds: Object, old_inputs_map: Object) -> Outcome:
    """Read the object for a refresh or, where no inputs are known, for an import."""
    urn = request.urn
    if session.cluster is None:
        return _read_unreachable(session, request, olds, old_inputs_map)
    namespace, name = split_identifier(request.id)
    inputs, importing = normalize(to_manifest(old_inputs_map)), False
    _, old_live = parse(olds)
    if not inputs.get("kind"):
        importing = not old_live.get("kind")
        kind = kind_of_type(urn) if importing else kind_of(old_live)
        inputs |= {"apiVersion": kind.api_version, "kind": kind.kind.removesuffix("Patch") if importing else kind.kind}
        inputs["metadata"] = dict(metadata_of(inputs))
        set_metadata(inputs, "name", name_of(inputs) or name)
        if namespace_of(inputs) or namespace:
            set_metadata(inputs, "namespace", namespace_of(inputs) or namespace)
    manager = field_manager(olds, inputs, server_side=session.settings.server_side)
    failure: PartialFailure | None = None
    try:
        live = apply.read(session.operation(urn, manager), inputs, name, importing=importing)
    except NoSuchKind:
        return Outcome("", {})
    except ApiError as error:
        if error.code == 404:
            return Outcome("", {})
        raise
    except PartialFailure as error:
        failure, live = error, error.live or {}
    live_inputs = prune(live, inputs)
    if importing:
        live_inputs |= _imported(live)
    state = checkpoint(
        live_inputs, live, old_inputs_map, api_version=initial_api_version(olds, inputs), manager=manager
    )
    kept = copy.deepcopy(live_inputs)
    mark_secrets(kept, old_inputs_map)
    outcome = Outcome(request.id or identifier(live), state, kept)
    if failure is not None:
        raise InitializationFailed(str(failure), outcome, failure.reasons) from failure
    return outcome


def _imported(live: Object) -> Object:
    """The part of a live object that a program would write; of a custom resource nobody but its CRD knows it."""
    if not is_built_in(kind_of(live)):
        return {}
    found = copy.deepcopy({key: value for key, value in live.items() if key != "status"})
    metadata = metadata_of(found)
    for key in READ_ONLY_METADATA:
        metadata.pop(key, None)
    for key in (REVISION, LAST_APPLIED):
        (metadata.get("annotations") or {}).pop(key, None)
    return found


def _read_unreachable(
    session: Session, request: provider_pb2.ReadRequest, olds: Object, old_inputs: Object
) -> Outcome:  # fmt: skip
    settings = session.settings
    session.engine.warning(request.urn, f"configured Kubernetes cluster is unreachable: {settings.unreachable}")
    if settings.delete_unreachable:
        return Outcome("", {})
    if settings.skip_update_unreachable:
        return Outcome(request.id, olds, old_inputs)
    raise OperationFailed(f"failed to read resource state due to unreachable cluster. {REMOVE_UNREACHABLE}")


def delete(session: Session, request: provider_pb2.DeleteRequest, olds: Object) -> None:
    """Delete the object and wait until it is gone."""
    urn, settings = request.urn, session.settings
    if session.cluster is None:
        session.engine.warning(urn, f"configured Kubernetes cluster is unreachable: {settings.unreachable}")
        if settings.delete_unreachable:
            return
        raise OperationFailed(f"configured Kubernetes cluster is unreachable. {REMOVE_UNREACHABLE}")
    inputs, live = parse(olds)
    manager = field_manager(olds, inputs, server_side=settings.server_side)
    _, name = split_identifier(request.id)
    try:
        apply.delete(session.operation(urn, manager), inputs, live, name, request.timeout)
    except PartialFailure as failure:
        last = failure.live or live
        version = initial_api_version(olds, inputs)
        outcome = Outcome(request.id, checkpoint(inputs, last, olds, api_version=version, manager=manager))
        raise InitializationFailed(str(failure), outcome, failure.reasons) from failure
