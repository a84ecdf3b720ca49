"""Facts about a resource's inputs, from a Terraform provider's source. Inputs are named as in Pulumi's SDK."""

from __future__ import annotations

import importlib
import importlib.util
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_args, get_origin

from pulumi import _types

from simulation.facts.go_source import Call, GoSource, Literal, Name

Fact = dict[str, Any]
"""Facts about an input. `words` are its allowed values."""
_SCALARS = {
    "TypeString": "string",
    "TypeInt": "int",
    "TypeFloat": "float",
    "TypeBool": "bool",
    "TypeNullableBool": "string",
    "TypeNullableInt": "string",
}
_COLLECTIONS = {"TypeList": "list", "TypeSet": "set", "TypeMap": "map"}
_PATHS = {
    "ConflictsWith": "conflicts",
    "ExactlyOneOf": "exactly_one_of",
    "AtLeastOneOf": "at_least_one_of",
    "RequiredWith": "required_with",
}
"""Schema field that lists paths of other inputs -> key of the fact."""
_REPLACED_DEFAULTS: Mapping[Any, str] = {"Managed by Terraform": "Managed by Pulumi"}
"""Terraform's default -> Pulumi's: https://github.com/pulumi/pulumi-aws/blob/v7.51.1/provider/resources.go"""
ANONYMOUS_FUNCTION = "function"
"""Text in a table of facts that stands for an anonymous function."""


@dataclass
class Reader:
    """Reader of a resource's schema."""

    source: GoSource
    prefix: str
    """Start of the path of each source file. The `line` of a fact omits this start."""
    enums: BotocoreEnums
    """Enumerations of the API's types."""
    inputs: dict[str, Fact] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    """Terraform's dotted path -> Pulumi's path."""
    unnamed: list[str] = field(default_factory=list)
    """Inputs that Pulumi's SDK does not have."""
    outputs: set[str] = field(default_factory=set)
    """Paths that Pulumi's SDK accepts as inputs, although the provider only computes them."""

    def read(self, resource: Literal, sdk: SdkClass) -> None:
        """Read all inputs, and the conditions of `CustomizeDiff` under which a change replaces the resource."""
        self._schema(resource.fields["Schema"], sdk, "", "")
        for fact in self.inputs.values():
            for key in _PATHS.values():
                if key in fact:
                    paths = map(_without_indices, fact[key])
                    fact[key] = sorted(self.names[path] for path in paths if path in self.names)
        for call in _conditions(resource.fields.get("CustomizeDiff")):
            path = self.names.get(_without_indices(str(call.arguments[0])))
            condition = _formatted(call.arguments[1])
            # The rules for anonymous conditions are written by hand into the tables (simulation/cloud/facts).
            if path and condition != ANONYMOUS_FUNCTION:
                self.inputs[path]["replace_if"] = condition
                self.inputs[path]["replace_line"] = call.line.removeprefix(self.prefix)

    def _schema(self, schema: Literal, sdk: SdkClass, terraform: str, pulumi: str) -> None:
        for key, value in schema.fields.items():
            if not isinstance(value, Literal):
                continue
            name = sdk.name(key)
            if not (value.fields.get("Optional") or value.fields.get("Required")):
                self.outputs |= {pulumi + name} if name else set()
                continue
            if name is None:
                self.unnamed.append(terraform + key)
                continue
            path = pulumi + name
            self.names[terraform + key] = path
            fact, inner = self._fact(value)
            block, several = sdk.block(name)
            self.inputs[path] = fact
            if inner is not None and block is not None:
                if not several and fact["type"] in ("list(block)", "set(block)"):
                    fact["type"] = "block"
                self._schema(inner, block, f"{terraform}{key}.", f"{path}.")
            elif fact["type"] in ("list(string)", "set(string)") and fact.get("max_items") == 1:
                fact["type"] = fact["type"] if name.endswith("s") else "string"
            fact["line"] = schema.lines.get(key, "").removeprefix(self.prefix)

    def _fact(self, value: Literal) -> tuple[Fact, Literal | None]:
        given = value.fields
        fact: Fact = {"type": _type(given)}
        inner = None
        element = given.get("Elem")
        if isinstance(element, Literal) and isinstance(element.fields.get("Schema"), Literal):
            inner = element.fields["Schema"]
        elif isinstance(element, Literal):
            fact |= self._validated(element.fields)
        for key, name in (("Required", "required"), ("Computed", "computed"), ("ForceNew", "force_new")):
            if given.get(key) is True:
                fact[name] = True
        for key, name in (("Default", "default"), ("MinItems", "min_items"), ("MaxItems", "max_items")):
            plain = self._word(given.get(key))
            if isinstance(plain, str | int | float):
                fact[name] = _REPLACED_DEFAULTS.get(plain, plain)
        for key, name in _PATHS.items():
            if isinstance(given.get(key), list):
                fact[name] = [each for each in given[key] if isinstance(each, str)]
        fact |= self._validated(given)
        if suppress := given.get("DiffSuppressFunc"):
            fact["suppress"] = _formatted(suppress)
        return fact, inner

    def _validated(self, given: dict[str, Any]) -> Fact:
        found: Fact = {}
        for key in ("ValidateFunc", "ValidateDiagFunc"):
            if given.get(key) is not None:
                found |= self._validation(given[key])
        return found

    def _validation(self, check: Any) -> Fact:
        name = check.name.last if isinstance(check, Call) else check.last if isinstance(check, Name) else ""
        arguments = list(check.arguments) if isinstance(check, Call) else []
        if name in ("StringInSlice", "ValidateEnum", "IntInSlice") and (words := self._allowed_values(arguments[0])):
            ignores_case = len(arguments) > 1 and arguments[1] is True
            return {"words": words} | ({"ignore_case": True} if ignores_case else {})
        types = check.types if isinstance(check, Call) else ()
        if name == "Validate" and types and (words := self.enums.of_type(types[0])):
            return {"words": words}
        if name in ("IntAtLeast", "FloatAtLeast"):
            return {"min": arguments[0]}
        if name in ("IntAtMost", "FloatAtMost"):
            return {"max": arguments[0]}
        if name in ("IntBetween", "FloatBetween"):
            return {"min": arguments[0], "max": arguments[1]}
        if name == "StringLenBetween" and all(isinstance(each, int) for each in arguments):
            return {"length": arguments}
        if name in ("ValidateRegexp", "StringMatch"):
            pattern = arguments[0].arguments[0] if isinstance(arguments[0], Call) else arguments[0]
            if isinstance(pattern, str) and _is_pattern(pattern):
                return {"pattern": pattern}
        if name == "ValidateTypeStringNullableBool":
            return {"words": ["true", "false", ""]}
        if name == "StringDoesNotMatch" and isinstance(arguments[0], Call):
            return {"excluded_pattern": arguments[0].arguments[0]}
        if name == "ToDiagFunc":
            return self._validation(arguments[0])
        if name == "OrEmpty":
            return {**self._validation(arguments[0]), "or_empty": True}
        if name in ("All", "AllDiag"):
            merged: Fact = {}
            for each in arguments:
                found = self._validation(each)
                both = {"check", "pattern"} & merged.keys() & found.keys()
                for key in both:
                    found[key] = [*_listed(merged[key]), *_listed(found[key])]
                merged |= found
            return merged
        return {"check": _formatted(check)}

    def _allowed_values(self, given: Any) -> list[Any] | None:
        """Return the allowed values in a list, in a call that builds a list, or in an API's constants.

        Return None if a value is unknown. For `AppendUnique`, leave out a list with an unknown value.
        """
        elements = given
        if isinstance(given, Call):
            name = given.name.last
            if name == "Range":
                start, stop, step = given.arguments
                return list(range(start, stop, step))
            if name == "Values" and given.types:
                return self.enums.of_type(given.types[0])
            if name == "AppendUnique":
                return [
                    *(self._allowed_values(given.arguments[0]) or ()),
                    *(self._allowed_values(given.arguments[1:]) or ()),
                ]
            elements = given.arguments if name == "Slice" else None
        if not isinstance(elements, list | tuple):
            return None
        words = [self._word(each) for each in elements]
        return words if all(isinstance(each, str | int) for each in words) else None

    def _word(self, value: Any) -> Any:
        """Return the value of an API's constant, and any other value unchanged."""
        return (self.enums.of_constant(value.last) or value) if isinstance(value, Name) else value


def plan_functions(resource: Literal) -> list[str]:
    """Return the functions that a resource runs on each plan. The tables have their rules, written by hand."""
    given = resource.fields.get("CustomizeDiff")
    calls = given.arguments if isinstance(given, Call) else (given,)
    return [_formatted(each) for each in calls if each is not None]


def _is_pattern(text: str) -> bool:
    """Return True if Python accepts a Go pattern. Python has no classes such as \\p{L}."""
    try:
        re.compile(text)
    except re.error:
        return False
    return True


def _type(given: dict[str, Any]) -> str:
    name = given["Type"].last if isinstance(given.get("Type"), Name) else "?"
    if name in _SCALARS:
        return _SCALARS[name]
    element = given.get("Elem")
    if isinstance(element, Literal) and isinstance(element.fields.get("Schema"), Literal):
        return f"{_COLLECTIONS[name]}(block)"
    inner = _type(element.fields) if isinstance(element, Literal) else "string"
    return f"{_COLLECTIONS[name]}({inner})"


def _conditions(given: Any) -> Iterator[Call]:
    """Yield the `ForceNewIf...` calls of a `CustomizeDiff`."""
    if isinstance(given, Call):
        if given.name.last.startswith("ForceNewIf"):
            yield given
        else:
            for each in given.arguments:
                yield from _conditions(each)


def _without_indices(path: str) -> str:
    return ".".join(part for part in path.split(".") if not part.isdigit())


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _formatted(value: Any) -> str:
    if isinstance(value, Call):
        types = f"[{', '.join(value.types)}]" if value.types else ""
        return f"{value.name.last}{types}({', '.join(map(_formatted, value.arguments))})"
    if isinstance(value, Name):
        return value.last if not value.text.startswith("function at") else ANONYMOUS_FUNCTION
    if isinstance(value, list):
        return f"[{', '.join(map(_formatted, value))}]"
    return repr(value) if not isinstance(value, Literal) else "{...}"


_FRAMEWORK_TYPES: Mapping[str, str] = {
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
_FRAMEWORK_CHECKS: Mapping[str, str] = {
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
"""Validator or type of the plugin framework -> equivalent check of the plugin SDK."""


def as_plugin_sdk(schema: Literal) -> Literal:
    """Return the resource of Terraform's plugin SDK that is equivalent to a schema of its plugin framework."""
    return Literal({"Schema": _framework_inputs(schema)}, {}, "schema.Resource")


def _framework_inputs(block: Literal) -> Literal:
    parts = [each for key in ("Attributes", "Blocks") if isinstance(each := block.fields.get(key), Literal)]
    fields = {
        name: _framework_input(value)
        for part in parts
        for name, value in part.fields.items()
        if isinstance(value, Literal) and Name(value.type).last in _FRAMEWORK_TYPES
    }
    return Literal(fields, {name: line for part in parts for name, line in part.lines.items()}, "map[")


def _framework_input(value: Literal) -> Literal:
    given = value.fields
    fields: dict[str, Any] = {key: given[key] for key in ("Required", "Optional", "Computed") if key in given}
    fields["Type"] = Name(_FRAMEWORK_TYPES[Name(value.type).last])
    modifiers = given.get("PlanModifiers") or []
    fields["ForceNew"] = any(_framework_name(each).startswith("RequiresReplace") for each in modifiers)
    default = given.get("Default")
    if isinstance(default, Call) and default.name.last.startswith("Static"):
        fields["Default"] = default.arguments[0]
    if isinstance(nested := given.get("NestedObject"), Literal):
        fields["Elem"] = as_plugin_sdk(nested)
        fields["Optional"] = True
    checks = list(_framework_checks(given, fields))
    if checks:
        fields["ValidateFunc"] = Call(Name("validation.All"), tuple(checks), "")
    return Literal(fields, value.lines, "schema.Schema")


def _framework_checks(given: Mapping[str, Any], fields: dict[str, Any]) -> Iterator[Any]:
    """Yield the checks of values. Store the limits of the number of elements in `fields`."""
    for each in [given.get("CustomType"), *(given.get("Validators") or [])]:
        name = _framework_name(each)
        if name in ("SizeAtLeast", "SizeAtMost"):
            fields["MinItems" if name == "SizeAtLeast" else "MaxItems"] = each.arguments[0]
            # The framework treats a missing block as an empty list.
            fields["Required"] = fields.get("Required") or ("Elem" in fields and name == "SizeAtLeast")
        elif name in _FRAMEWORK_CHECKS:
            check = Name(_FRAMEWORK_CHECKS[name])
            has_arguments = isinstance(each, Call) and (each.arguments or each.types)
            yield Call(check, each.arguments, "", each.types) if has_arguments else check
        elif each is not None and each is not given.get("CustomType"):
            yield each


def _framework_name(value: Any) -> str:
    if isinstance(value, Literal):
        return Name(value.type).last
    return value.name.last if isinstance(value, Call) else value.last if isinstance(value, Name) else ""


class SdkClass:
    """Inputs of a resource or of a block, as a class of Pulumi's SDK declares them."""

    def __init__(self, cls: type) -> None:
        self._types: Mapping[str, Any] = _types.input_type_types(cls)

    def name(self, terraform: str) -> str | None:
        """Return Pulumi's name of an input; None if Pulumi's SDK does not have it."""
        head, *rest = terraform.split("_")
        camel = head + "".join(part[:1].upper() + part[1:] for part in rest)
        return next((each for each in _forms(camel) if each in self._types), None)

    def block(self, name: str) -> tuple[SdkClass | None, bool]:
        """Return the class of a block, or None for other inputs.

        The second value is True if the input is a list of blocks.
        """
        found = list(_classes(self._types[name], False))
        return (SdkClass(found[0][0]), found[0][1]) if found else (None, False)


def _forms(name: str) -> Iterator[str]:
    """Yield the names that Pulumi may give an input: unchanged, plural or singular."""
    yield name
    yield f"{name}s"
    yield f"{name}es"
    if name.endswith("y"):
        yield f"{name[:-1]}ies"
    yield name.removesuffix("s")


def _classes(expected: Any, several: bool) -> Iterator[tuple[type, bool]]:
    """Yield the input classes in a type, each with True if it is in a list."""
    expected = _types.unwrap_type(expected)
    origin = get_origin(expected)
    if isinstance(expected, type) and _types.is_input_type(expected):
        if typing.get_origin(expected) is None and not getattr(expected, "_is_protocol", False):
            yield expected, several
        return
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return
    is_list = isinstance(origin, type) and issubclass(origin, Sequence)
    for each in get_args(expected):
        yield from _classes(each, several or is_list)


class BotocoreEnums:
    """Enumerations in an AWS service's API, from the models in botocore; empty if botocore is not installed.

    Install botocore by hand in the environment of this command.
    """

    def __init__(self, service: str) -> None:
        self._types: dict[str, list[str]] = {}
        if importlib.util.find_spec("botocore") is None:
            return
        session = importlib.import_module("botocore.session").get_session()
        if service in session.get_available_services():
            model = session.get_service_model(service)
            shapes = ((name, model.shape_for(name)) for name in model.shape_names)
            self._types = {name: list(shape.enum) for name, shape in shapes if getattr(shape, "enum", None)}

    def of_type(self, name: str) -> list[str] | None:
        """Return the values of a type such as `types.AMITypes`; None if the type is unknown."""
        return self._types.get(name.rpartition(".")[2])

    def of_constant(self, name: str) -> str | None:
        """Return the value of a constant of AWS's SDK for Go; None if it is unknown.

        The constant's name consists of the type's name and the value.
        """
        return self._constants.get(name.lower())

    @cached_property
    def _constants(self) -> dict[str, str]:
        return {
            f"{kind}{re.sub('[^0-9A-Za-z]', '', word)}".lower(): word
            for kind, words in self._types.items()
            for word in words
        }
