"""Loader of a stack's YAML file. It rejects duplicate keys, recursive aliases, and values that YAML changes.

YAML parsers differ. Pulumi's parser, gopkg.in/yaml.v3, mixes YAML 1.1 and 1.2: it reads `010` as 8 and `yes` as text.
This loader follows Pulumi.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import yaml

from settings.problem import Path, Problem, may_be_secret

MAX_VALUES = 50_000
"""Maximum number of values in a file. The values of an alias count at each use."""
CHARACTERS_PER_VALUE = 1000
"""Characters of text that count as one more value."""
TEXT_KEYS = ("environment", "args", "job")
"""Keys whose values reach programs as text, even numbers. `job` is a flag of the trainer."""
CONVERTED_TAGS = ("int", "float", "bool", "timestamp", "binary")
"""Tags of values that YAML converts from their text."""
BOOLEANS = ("true", "false")
"""Words that every YAML parser reads as booleans, in upper or lower case."""


PULUMI_PATTERNS = {
    "float": r"[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$",
    "int": r"[-+]?0([oO][0-7_]+|[xX][0-9a-fA-F_]+|[bB][01_]+)$",
    "timestamp": r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}$",
}
"""Tag -> pattern of numbers and dates in Pulumi's YAML. PyYAML reads some of these as text. Source: gopkg.in/yaml.v3,
resolve.go."""


class _Loader(yaml.SafeLoader):
    """Loader that reads numbers and dates as Pulumi does.

    It reads some other values differently, such as `yes`. `changed_value_problem` rejects such values.
    """

    def construct_json_number(self, node: yaml.ScalarNode) -> int | float:
        """Return a number as in JSON, where 2.0 is 2."""
        value: float = self.construct_yaml_float(node)
        return int(value) if value.is_integer() else value


_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_json_number)
_LOADER: Any = _Loader
"""The loader as Any, because its methods have no type hints."""
for _tag, _pattern in PULUMI_PATTERNS.items():
    _LOADER.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list("-+.0123456789"))


def document(text: str) -> yaml.Node | None:
    """Return the root node of a YAML text, or None if it is empty. Raises ValueError with a one-line message."""
    with _one_line_errors():
        node = _Loader(text).get_single_node()
        if node is not None:
            _SizeCheck().size(node)
        return node


def values(node: yaml.Node | None) -> Any:
    """Return the values of a document. Raises ValueError with a one-line message."""
    with _one_line_errors():
        loader = _LOADER("")
        return None if node is None else loader.construct_document(node)


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """Convert PyYAML's errors to ValueErrors of one line, without possible secrets."""
    try:
        yield
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {_reason(error)}") from None
    except RecursionError:
        raise ValueError("is nested too deeply; remove levels") from None


def _reason(error: yaml.YAMLError) -> str:
    """Return the position and reason of an error, without the line itself, which may contain a secret."""
    if isinstance(error, yaml.reader.ReaderError):
        return f"character {error.position + 1}: {error.reason}; remove the character"
    if not isinstance(error, yaml.MarkedYAMLError):
        return "cannot be read"
    mark = error.problem_mark or error.context_mark
    position = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    reason = ", ".join(_redacted(text) for text in (error.context, error.problem) if text)
    remedy = ""
    if "'\\t'" in reason:
        remedy = "; indent with spaces"
    elif "cannot start any token" in reason:
        remedy = "; put the value in quotes"
    return f"{position}{reason}{remedy}"


def _redacted(text: str) -> str:
    """Return a reason without the names that it quotes from the file. Keep punctuation and token types."""
    return re.sub(r"(['\"])(?!<)[^'\"]{3,}?\1|(['\"]).*?\2", lambda match: "..." if match[1] else match[0], text)


class _SizeCheck:
    """Traversal that visits each node once. It rejects duplicate keys, recursive aliases, and too many values."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._ancestors: set[int] = set()

    def size(self, node: yaml.Node, key: str = "the file") -> int:
        """Return the number of values in a node, with its aliases expanded."""
        identity, line = id(node), node.start_mark.line + 1
        if identity in self._ancestors:
            raise ValueError(
                f"the value of {key} is an alias of the node at line {line}, which contains the alias; remove the alias"
            )
        if identity not in self._sizes:
            self._ancestors.add(identity)
            self._sizes[identity] = size = self._count(node, key)
            self._ancestors.remove(identity)
            if size > MAX_VALUES:
                raise ValueError(f"the value of {key}, line {line}, has more than {MAX_VALUES} values; write fewer")
        return self._sizes[identity]

    def _count(self, node: yaml.Node, key: str) -> int:
        if isinstance(node, yaml.SequenceNode):
            return 1 + sum(self.size(item, key) for item in node.value)
        if not isinstance(node, yaml.MappingNode):
            return 1 + len(node.value) // CHARACTERS_PER_VALUE
        lines: dict[str, int] = {}
        size = 1
        for name_node, value in node.value:
            name, line = str(name_node.value), name_node.start_mark.line + 1
            if name in lines:
                places = f"twice on line {line}" if lines[name] == line else f"on lines {lines[name]} and {line}"
                raise ValueError(f"the key {name} appears {places}; write it once")
            lines[name] = line
            size += 1 + self.size(value, name)
        return size


@dataclass(frozen=True)
class TypedValue:
    """Value that YAML reads as a type other than text."""

    path: Path
    text: str
    tag: str
    """Type that YAML gives the value, such as `int`."""
    value: object
    """Value that YAML reads, or None if YAML cannot convert the text."""
    is_secret: bool
    """True if the value may be a secret. Messages then hide the value."""


def entries(node: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    """Return the keys and values of a mapping; an empty list for any other node."""
    return [(str(key.value), value) for key, value in node.value] if isinstance(node, yaml.MappingNode) else []


def typed_values(node: yaml.Node, path: Path, siblings: Sequence[yaml.Node] = ()) -> Iterator[TypedValue]:
    """Yield all values at or below `node` that YAML converts from text.

    `siblings` are the items of the list that contains `node`.
    """
    for key, value in entries(node):
        yield from typed_values(value, (*path, key))
    if isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from typed_values(value, (*path, index), node.value)
    tag = node.tag.rpartition(":")[2]
    if not isinstance(node, yaml.ScalarNode) or tag not in CONVERTED_TAGS:
        return
    loader = _LOADER("")
    try:
        converted = loader.construct_object(node)
    except (ValueError, yaml.YAMLError):
        converted = None
    words = [str(sibling.value) for sibling in siblings if isinstance(sibling, yaml.ScalarNode)]
    is_secret = "secrets" in path or may_be_secret(words) or may_be_secret(node.value, str(path[-1]))
    yield TypedValue(path, node.value, tag, converted, is_secret)


def changed_value_problem(typed: TypedValue) -> Problem | None:
    """Return a problem if YAML changes the value (e.g. `010` becomes 8), else None."""
    key, is_text = typed.path[-1], not set(TEXT_KEYS).isdisjoint(typed.path[-2:])
    if typed.tag == "binary":
        return Problem("yaml.value.binary", typed.path, "is read as bytes; write the text itself, in quotes")
    if typed.tag == "bool":
        if typed.text.lower() in BOOLEANS:
            return None
        error = f"{typed.text} is {str(typed.value).lower()} for some YAML parsers and text for others"
        return Problem("yaml.value.bool", typed.path, f"{error}; write true or false, or put it in quotes")
    is_date = typed.tag == "timestamp"
    if typed.value is None:
        message = "is not a valid date; put it in quotes"
        if not is_date:
            message = "cannot be read as a number; write a shorter number, or put it in quotes"
        return Problem("yaml.value.unreadable", typed.path, message)
    if not is_date and (str(typed.value) == typed.text if is_text else _is_decimal(typed)):
        return None
    entry = f"`{key}: '{typed.text}'`" if isinstance(key, str) else f"`- '{typed.text}'`"
    changed = f"{typed.text} is read as {'a date' if is_date else typed.value}"
    message = "YAML changes its value" if typed.is_secret else changed
    quoted = "put it in quotes" if typed.is_secret else f"put it in quotes: {entry}"
    decimal = "" if is_text or is_date else "write a number in decimal, without a leading 0; if it is text, "
    return Problem("yaml.value.changed", typed.path, f"{message}; {decimal}{quoted}")


def _is_decimal(typed: TypedValue) -> bool:
    """Return True if a number equals the decimal number in its text, or if that comparison does not apply."""
    if not isinstance(typed.value, int | float) or typed.text.lstrip("+-").startswith("."):
        return True
    try:
        return float(Decimal(typed.text)) == float(typed.value)
    except (InvalidOperation, OverflowError):
        return False
