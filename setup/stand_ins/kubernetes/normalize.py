"""One spelling for inputs that the API server takes as the same, so that they do not show as a difference for ever."""

import base64
import binascii
import copy

from setup.stand_ins.kubernetes.discovery import is_built_in
from setup.stand_ins.kubernetes.objects import Object, is_core_kind, is_crd, kind_of, pluck
from setup.stand_ins.kubernetes.quantities import canonicalize
from setup.stand_ins.kubernetes.values import has_unknown

READ_ONLY_METADATA = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "uid",
)


def normalize(inputs: Object) -> Object:
    """A copy in the server's spelling, without what only the server sets. What is not known yet is left alone."""
    result = copy.copy(inputs)
    if not has_unknown(inputs):
        if is_crd(inputs):
            result = _definition(inputs)
        elif is_core_kind(inputs, "Secret"):
            result = _secret(inputs)
        elif is_built_in(kind_of(inputs)) and not is_core_kind(inputs, "ConfigMap"):
            result = canonicalize(inputs)
    if isinstance(result.get("metadata"), dict):
        result["metadata"] = {key: value for key, value in result["metadata"].items() if key not in READ_ONLY_METADATA}
    return result


def _definition(inputs: Object) -> Object:
    result = {key: value for key, value in inputs.items() if key != "status"}
    if pluck(inputs, "spec", "preserveUnknownFields") is False:
        result["spec"] = {key: value for key, value in inputs["spec"].items() if key != "preserveUnknownFields"}
    return result


def _secret(inputs: Object) -> Object:
    """The server keeps stringData as base64 in data, and data without the white space of its spelling."""
    result = copy.copy(inputs)
    data = {
        key: _base64(value) if isinstance(value, str) else value for key, value in (inputs.get("data") or {}).items()
    }
    clear = inputs.get("stringData")
    if isinstance(clear, dict) and clear:
        data |= {key: base64.b64encode(str(value).encode()).decode() for key, value in clear.items()}
        del result["stringData"]
    if data:
        result["data"] = data
    return result


def _base64(text: str) -> str:
    try:
        return base64.b64encode(base64.b64decode("".join(text.split()), validate=True)).decode()
    except binascii.Error:
        return text  # the server will say what is wrong with it
