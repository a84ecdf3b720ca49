"""Conversion of Pulumi's property values between gRPC messages (the wire) and Python values."""

from collections.abc import Mapping
from typing import Any

from google.protobuf import struct_pb2

SIGNATURE_KEY = "4dabf18193072939515e22adb298388d"
"""Key that marks an object as a special value, such as a secret. Its value is a signature."""
SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"
OUTPUT_SIGNATURE = "d0e6a833031e9bbcd3f4e8bde6ca49a4"
UNKNOWN_ON_THE_WIRE = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
UNKNOWNS = frozenset(
    {
        UNKNOWN_ON_THE_WIRE,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",  # boolean
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",  # number
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",  # array
        "030794c1-ac77-496b-92df-f27374a8bd58",  # asset
        "e48ece36-62e2-4504-bad9-02848725956a",  # archive
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",  # object
    }
)
"""Texts that stand for an unknown value of each type."""


class Unknown:
    """Placeholder for a value that is known only after the update."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = Unknown()


def from_wire(properties: struct_pb2.Struct) -> dict[str, Any]:
    """Return the properties in a message. Secrets become plain values. Unknown values become UNKNOWN."""
    return {key: _value_from_wire(value) for key, value in properties.fields.items()}


def _value_from_wire(value: struct_pb2.Value) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return _object_from_wire(value.struct_value)
    if kind == "list_value":
        return [_value_from_wire(element) for element in value.list_value.values]
    if kind == "number_value":
        return int(value.number_value) if value.number_value.is_integer() else value.number_value
    if kind == "string_value":
        return UNKNOWN if value.string_value in UNKNOWNS else value.string_value
    return value.bool_value if kind == "bool_value" else None


def _object_from_wire(fields: struct_pb2.Struct) -> Any:
    signature = fields.fields[SIGNATURE_KEY].string_value if SIGNATURE_KEY in fields.fields else ""
    if signature == SECRET_SIGNATURE:
        return _value_from_wire(fields.fields["value"])
    if signature == OUTPUT_SIGNATURE:
        return _value_from_wire(fields.fields["value"]) if "value" in fields.fields else UNKNOWN
    return from_wire(fields)


def to_wire(properties: Mapping[str, Any]) -> struct_pb2.Struct:
    """Return the message for properties."""
    fields = struct_pb2.Struct()
    fields.update({key: _value_to_wire(value) for key, value in properties.items()})
    return fields


def _value_to_wire(value: Any) -> Any:
    if isinstance(value, Unknown):
        return UNKNOWN_ON_THE_WIRE
    if isinstance(value, dict):
        return {key: _value_to_wire(element) for key, element in value.items()}
    if isinstance(value, list):
        return [_value_to_wire(element) for element in value]
    return value
