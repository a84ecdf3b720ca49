"""Check: the inputs of a resource as the provider takes them, with a name and a namespace."""

import copy

from pulumi.runtime.proto import provider_pb2

from setup.stand_ins.kubernetes import naming
from setup.stand_ins.kubernetes.annotations import AUTONAMED, HELM_HOOK
from setup.stand_ins.kubernetes.normalize import normalize
from setup.stand_ins.kubernetes.objects import (
    Object,
    is_crd,
    is_patch_resource,
    kind_of_type,
    metadata_of,
    name_of,
    set_metadata,
    type_token,
)
from setup.stand_ins.kubernetes.operation import OperationFailed
from setup.stand_ins.kubernetes.session import REFUSED, Session
from setup.stand_ins.kubernetes.state import mark_secrets, to_manifest
from setup.stand_ins.kubernetes.values import Unknown

NOT_SERVED = ("helm.sh/", "kustomize/")
MANAGED_BY = "app.kubernetes.io/managed-by"


def check(session: Session, request: provider_pb2.CheckRequest, olds: Object, news: Object) -> Object:
    """The checked inputs, what is secret in them still so. Raises OperationFailed, NamingDisabled or ValueError."""
    urn = request.urn
    kind = kind_of_type(urn)
    old_inputs, inputs = to_manifest(olds), normalize(copy.deepcopy(to_manifest(news)))
    _refuse(session, urn, inputs)
    _warn(session, urn, inputs)
    if old_inputs:
        naming.adopt(inputs, old_inputs)
        if _managed_by(old_inputs):
            _label(inputs)
    else:
        options = request.autonaming if request.HasField("autonaming") else None
        naming.assign(inputs, urn, request.randomSeed, options)
        if not session.settings.server_side:
            _label(inputs)
    if naming.is_generate_name(inputs) and session.settings.server_side:
        raise OperationFailed("the `.metadata.generateName` field is not supported in Server-Side Apply mode")
    namespace = metadata_of(inputs).get("namespace")
    if session.settings.namespace and not namespace and session.discovery.is_namespaced(kind):
        set_metadata(inputs, "namespace", session.settings.namespace)
    if is_crd(inputs):
        session.discovery.plan(inputs)
    mark_secrets(inputs, news)
    return inputs


def _refuse(session: Session, urn: str, inputs: Object) -> None:
    _, module, kind = type_token(urn).split(":")
    if module.startswith(NOT_SERVED):
        raise OperationFailed(REFUSED.format(what=f"the resource {type_token(urn)}"))
    if kind.endswith("List") and "items" in inputs:
        raise OperationFailed(
            "list resources exist for compatibility with YAML manifests and Helm charts, and cannot be created "
            "directly. Use the underlying resource type instead"
        )
    if is_patch_resource(urn, str(inputs.get("kind"))):
        if not session.settings.server_side:
            raise OperationFailed(
                "patch resources require Server-Side Apply mode, which is enabled using the `enableServerSideApply` "
                "Provider config"
            )
        if not name_of(inputs) and not isinstance(metadata_of(inputs).get("name"), Unknown):
            raise OperationFailed("patch resources require the `.metadata.name` field to be set")


def _warn(session: Session, urn: str, inputs: Object) -> None:
    annotations = metadata_of(inputs).get("annotations")
    for key in annotations if isinstance(annotations, dict) else ():
        if key.startswith(AUTONAMED):
            session.engine.warning(urn, f'ignoring user-specified value for internal annotation "{key}"')
        if key.startswith(HELM_HOOK) and not session.settings.suppress_helm_hook_warnings:
            session.engine.warning(urn, f'"{key}" is a Helm hook; Pulumi creates the object and executes no hook')


def _managed_by(manifest: Object) -> bool:
    labels = metadata_of(manifest).get("labels")
    return isinstance(labels, dict) and (
        labels.get(MANAGED_BY) == "pulumi" or isinstance(labels.get(MANAGED_BY), Unknown)
    )


def _label(manifest: Object) -> None:
    metadata = manifest.setdefault("metadata", {})
    if isinstance(metadata, dict) and isinstance(labels := metadata.setdefault("labels", {}), dict):
        labels[MANAGED_BY] = "pulumi"
