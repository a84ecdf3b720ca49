"""Conversion of Terraform plugin framework schemas to SDK schemas, which `terraform.Reader` reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from simulation.facts.go_source import Call, Literal, Name

_TYPES: Mapping[str, str] = {
    "StringAttribute": "TypeString",
    "BoolAttribute": "TypeBool",
    "Int32Attribute": "TypeInt",
    "Int64Attribute": "TypeInt",
    "Float64Attribute": "TypeFloat",
    "MapAttribute": "TypeMap",
    "ListAttribute": "TypeList",
    "SetAttribute": "TypeSet",
    "ListNestedBlock": "TypeList",
    "SetNestedBlock": "TypeSet",
}
_CHECKS: Mapping[str, str] = {
    "OneOf": "StringInSlice",
    "LengthBetween": "StringLenBetween",
    "AtLeast": "IntAtLeast",
    "AtMost": "IntAtMost",
    "Between": "IntBetween",
    "RegexMatches": "StringMatch",
    "AWSAccountID": "ValidAccountID",
    "ARNType": "ValidARN",
    "RFC3339Type": "IsRFC3339Time",
    "StringEnumType": "Validate",
}
"""Validator or type of the framework -> the SDK's equivalent check."""


def as_sdk(schema: Literal) -> Literal:
    """Return the SDK resource that is equivalent to a schema of the framework."""
    return Literal({"Schema": _inputs(schema)}, {}, "schema.Resource")


def _inputs(block: Literal) -> Literal:
    parts = [each for key in ("Attributes", "Blocks") if isinstance(each := block.fields.get(key), Literal)]
    fields = {
        name: _input(value)
        for part in parts
        for name, value in part.fields.items()
        if isinstance(value, Literal) and Name(value.type).last in _TYPES
    }
    return Literal(fields, {name: line for part in parts for name, line in part.lines.items()}, "map[")


def _input(value: Literal) -> Literal:
    given = value.fields
    fields: dict[str, Any] = {key: given[key] for key in ("Required", "Optional", "Computed") if key in given}
    fields["Type"] = Name(_TYPES[Name(value.type).last])
    modifiers = given.get("PlanModifiers") or []
    fields["ForceNew"] = any(_name(each).startswith("RequiresReplace") for each in modifiers)
    default = given.get("Default")
    if isinstance(default, Call) and default.name.last.startswith("Static"):
        fields["Default"] = default.arguments[0]
    if isinstance(nested := given.get("NestedObject"), Literal):
        fields["Elem"] = as_sdk(nested)
        fields["Optional"] = True
    checks = list(_checks(given, fields))
    if checks:
        fields["ValidateFunc"] = Call(Name("validation.All"), tuple(checks), "")
    return Literal(fields, value.lines, "schema.Schema")


def _checks(given: Mapping[str, Any], fields: dict[str, Any]) -> Iterator[Any]:
    """Yield the checks of values. Put limits on the number of elements into `fields`."""
    for each in [given.get("CustomType"), *(given.get("Validators") or [])]:
        name = _name(each)
        if name in ("SizeAtLeast", "SizeAtMost"):
            fields["MinItems" if name == "SizeAtLeast" else "MaxItems"] = each.arguments[0]
            # The framework treats a missing block as an empty list.
            fields["Required"] = fields.get("Required") or ("Elem" in fields and name == "SizeAtLeast")
        elif name in _CHECKS:
            check = Name(_CHECKS[name])
            has_arguments = isinstance(each, Call) and (each.arguments or each.types)
            yield Call(check, each.arguments, "", each.types) if has_arguments else check
        elif each is not None and each is not given.get("CustomType"):
            yield each


def _name(value: Any) -> str:
    if isinstance(value, Literal):
        return Name(value.type).last
    return value.name.last if isinstance(value, Call) else value.last if isinstance(value, Name) else ""
