"""What the provider keeps of an object in Pulumi's state: the live object, the inputs, and what of them is secret."""

from typing import Any

from setup.stand_ins.kubernetes.naming import FIELD_MANAGER_KEY
from setup.stand_ins.kubernetes.objects import Object
from setup.stand_ins.kubernetes.values import DASHED, UNDERSCORED, Secret, has_secret, rename_keys, reveal

INPUTS_KEY = "__inputs"
INITIAL_API_VERSION_KEY = "__initialApiVersion"


def to_manifest(properties: Object) -> Object:
    """Properties as the API server takes them: no secret wrappers, and dashes where the SDKs have underscores."""
    manifest = rename_keys(reveal(properties), DASHED)
    assert isinstance(manifest, dict)
    return manifest


def mark_secrets(outputs: Object, inputs: Object | None) -> None:
    """Make secret in `outputs` what is secret in `inputs`, and the data of every Secret whoever wrote it.

    Dictionaries are walked so that one secret does not hide all around it; a list with a secret in it is hidden
    whole, for the server may put its elements in another order.
    """
    if outputs.get("kind") == "Secret":
        for key in ("data", "stringData"):
            if key in outputs:
                outputs[key] = Secret(reveal(outputs[key]))
        return
    for key, value in (inputs or {}).items():
        if key not in outputs:
            continue
        if isinstance(outputs[key], dict) and isinstance(value, dict):
            mark_secrets(outputs[key], value)
        elif not isinstance(outputs[key], Secret) and has_secret(value):
            outputs[key] = Secret(reveal(outputs[key]))


def checkpoint(inputs: Object, live: Object, secrets_from: Object, *, api_version: str, manager: str) -> Object:
    """What goes into the state. `secrets_from` is the program's own property map, secrets wrapped."""
    outputs: Object = rename_keys(live, UNDERSCORED)
    kept_inputs: Object = rename_keys(inputs, UNDERSCORED)
    mark_secrets(outputs, secrets_from)
    mark_secrets(kept_inputs, secrets_from)
    outputs[INPUTS_KEY] = kept_inputs
    outputs[INITIAL_API_VERSION_KEY] = api_version
    outputs[FIELD_MANAGER_KEY] = manager
    return outputs


def parse(state: Object) -> tuple[Object, Object]:
    """The inputs and the live object that a state holds."""
    live = to_manifest(state)
    inputs: Any = live.pop(INPUTS_KEY, None) or {}
    return inputs, live


def initial_api_version(state: Object, inputs: Object) -> str:
    """The apiVersion with which the object was first created."""
    return str(state.get(INITIAL_API_VERSION_KEY) or inputs.get("apiVersion") or "")
