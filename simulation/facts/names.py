"""Names that a Terraform provider's source refers to: inputs of Pulumi's SDK, and words of AWS's API."""

from __future__ import annotations

import importlib
import importlib.util
import re
import typing
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, cached_property
from typing import Any, get_args, get_origin

from pulumi import _types

from simulation.cloud.schema import arguments_class


class SdkClass:
    """The inputs of a resource or of a block, as the SDK's class declares them."""

    def __init__(self, cls: type) -> None:
        self._types: Mapping[str, Any] = _types.input_type_types(cls)

    @classmethod
    def of(cls, token: str) -> SdkClass:
        """Return the inputs of a resource type. Raises schema.UnknownType."""
        return cls(arguments_class(token))

    def name(self, terraform: str) -> str | None:
        """Return the SDK's name of an input; None if the SDK does not have it."""
        head, *rest = terraform.split("_")
        camel = head + "".join(part[:1].upper() + part[1:] for part in rest)
        return next((each for each in _forms(camel) if each in self._types), None)

    def block(self, name: str) -> tuple[SdkClass | None, bool]:
        """Return the class of a block, or None for other inputs.

        The second value is True if the input is a list of blocks.
        """
        found = list(_classes(self._types[name], False))
        return (SdkClass(found[0][0]), found[0][1]) if found else (None, False)

    @property
    def names(self) -> frozenset[str]:
        """Names of the inputs."""
        return frozenset(self._types)


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


class BotocoreWords:
    """The enumerations of a service's types, from AWS's models in botocore; empty if botocore is not installed.

    Install botocore by hand, because its requirements differ from Trainyard's.
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
        """Return the words of a type such as `types.AMITypes`; None if the type is unknown."""
        return self._types.get(name.rpartition(".")[2])

    def of_constant(self, name: str) -> str | None:
        """Return the word of a constant of AWS's SDK for Go; None if it is unknown.

        The constant's name consists of the type's name and the word.
        """
        return self._constants.get(name.lower())

    @cached_property
    def _constants(self) -> dict[str, str]:
        return {
            f"{kind}{re.sub('[^0-9A-Za-z]', '', word)}".lower(): word
            for kind, words in self._types.items()
            for word in words
        }


@cache
def botocore_words(service: str) -> BotocoreWords:
    """Return the enumerations of a service."""
    return BotocoreWords(service)
