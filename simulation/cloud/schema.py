"""Check of inputs against the typed classes of a provider's SDK: unknown names, wrong types, missing inputs."""

from __future__ import annotations

import difflib
import importlib
import inspect
import sys
import types
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, Union, get_args, get_origin

from pulumi import _types

from settings.problem import Problem
from simulation.cloud.model import Properties, problem
from simulation.cloud.values import Unknown

SOURCE = "https://www.pulumi.com/registry/packages"
_PLAIN = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


class UnknownType(ValueError):
    """The resource type is not in the SDK, or its SDK is not installed."""


@cache
def _module(token: str) -> types.ModuleType:
    package, path, _ = token.split(":")
    folder = path.partition("/")[0]
    names = [f"pulumi_{package.replace('-', '_')}"]
    if folder not in ("", "index"):
        names = [f"{names[0]}.{folder}", f"{names[0]}.{folder}_"]
    for name in names:
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name != name:
                raise
    raise UnknownType(f"{token} belongs to {names[0]}, which is not installed")


@cache
def arguments_class(token: str) -> type:
    """Return the class of a resource's inputs, such as `ClusterArgs` for `gcp:container/cluster:Cluster`."""
    name = token.rpartition(":")[2]
    resource = getattr(_module(token), name, None)
    if resource is None:
        raise UnknownType(f"{_module(token).__name__} has no resource {token}")
    module = sys.modules[resource.__module__]
    # The SDK uses RESOURCEInitArgs if a nested type already has the name RESOURCEArgs.
    found = getattr(module, f"{name}InitArgs", None) or getattr(module, f"{name}Args")
    assert isinstance(found, type)
    return found


def problems(token: str, inputs: Properties) -> list[Problem]:
    """Return a problem for each input that the SDK's classes do not allow. Raises UnknownType."""
    found = _object(arguments_class(token), inputs, "")
    package = token.partition(":")[0]
    code = f"rehearsal.{package.replace('-', '_')}.provider_schema"
    return [problem(code, where, why, f"{SOURCE}/{package}") for where, why in found]


@cache
def _properties(cls: type) -> Mapping[str, Any]:
    return _types.input_type_types(cls)


@cache
def _required(cls: type) -> frozenset[str]:
    names = _types.input_type_py_to_pulumi_names(cls)
    parameters = inspect.signature(cls).parameters
    return frozenset(
        names.get(name, name) for name, each in parameters.items() if each.default is inspect.Parameter.empty
    )


def _object(cls: type, value: Any, path: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield path, f"must be an object, not {value!r}"
        return
    known = _properties(cls)
    for key, element in value.items():
        if key.startswith("__"):
            continue
        where = f"{path}.{key}" if path else key
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            yield where, f"is not a property of {cls.__name__}" + (f"; did you mean {near[0]}?" if near else "")
        elif element is not None:
            yield from _value(known[key], element, where)
    for key in sorted(_required(cls)):
        if value.get(key) is None:
            yield f"{path}.{key}" if path else key, f"is missing: {cls.__name__} requires it"


def _value(expected: Any, value: Any, path: str) -> Iterator[tuple[str, str]]:
    expected = _types.unwrap_type(expected)
    origin = get_origin(expected)
    if isinstance(value, Unknown) or expected is Any:
        return
    if origin in (Union, types.UnionType):
        attempts = [list(_value(each, value, path)) for each in get_args(expected) if each is not type(None)]
        if all(attempts):
            yield from min(attempts, key=len)
    elif isinstance(expected, type) and _types.is_input_type(expected):
        yield from _object(expected, value, path)
    elif origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            yield path, f"must be a mapping, not {value!r}"
            return
        for key, element in value.items():
            yield from _value(get_args(expected)[1], element, f"{path}.{key}")
    elif origin is not None and issubclass(origin, Sequence):
        if not isinstance(value, list):
            yield path, f"must be a list, not {value!r}"
            return
        for index, element in enumerate(value):
            yield from _value(get_args(expected)[0], element, f"{path}[{index}]")
    elif expected in _PLAIN and not _is_plain(expected, value):
        yield path, f"must be {_PLAIN[expected]}, not {value!r}"


def _is_plain(expected: type, value: Any) -> bool:
    is_bool = isinstance(value, bool)
    return (
        is_bool
        if expected is bool
        else not is_bool and isinstance(value, int | float if expected is float else expected)
    )


def property_names(token: str) -> frozenset[str]:
    """Return the names of a resource's inputs. Raises UnknownType."""
    return frozenset(_properties(arguments_class(token)))
