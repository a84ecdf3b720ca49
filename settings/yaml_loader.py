"""Loader of a stack's YAML file. It rejects values that readers of YAML would silently drop, change or repeat. Pure.

The loader follows Pulumi, whose gopkg.in/yaml.v3 mixes YAML 1.1 and 1.2: it reads `010` as 8 and `yes` as text.
ruamel.yaml reads `010` as 10 in YAML 1.2, and `yes` as true in YAML 1.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import yaml

from settings.problem import Path, Problem
from settings.secret_scan import is_in

MOST_VALUES = 50_000
"""Maximum number of values in a file. The values of an alias count at each use."""
CHARACTERS = 1000
"""Characters of a text that count as one more value."""
TEXTS = ("environment", "args", "job")
"""Keys whose values programs get as text, also if they are numbers. `job` is one of the flags."""
READ_BY_YAML = ("int", "float", "bool", "timestamp", "binary")
"""Tags of values that YAML converts from their text."""
BOOLEANS = ("true", "false")
"""Words that every YAML reader reads as booleans, in upper or lower case."""


FORMS = {
    "float": r"[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$",
    "int": r"[-+]?0([oO][0-7_]+|[xX][0-9a-fA-F_]+|[bB][01_]+)$",
    "timestamp": r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}$",
}
"""Tag -> text that Pulumi reads as a number or date. PyYAML reads some of it as text. Source: gopkg.in/yaml.v3,
resolve.go."""


class _Reader(yaml.SafeLoader):
    """Loader that returns the values that programs get from Pulumi."""

    def whole(self, node: yaml.ScalarNode) -> int | float:
        """Return a number as in JSON, where 2.0 is 2."""
        value: float = self.construct_yaml_float(node)
        return int(value) if value.is_integer() else value


_Reader.add_constructor("tag:yaml.org,2002:float", _Reader.whole)
_READER: Any = _Reader
"""The loader as Any, because its methods have no type hints."""
for _tag, _form in FORMS.items():
    _READER.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_form), list("-+.0123456789"))


def document(text: str) -> yaml.Node | None:
    """Return the node of a text, without values; None for an empty text. Raises ValueError with a one-line message."""
    with _in_one_line():
        node = _Reader(text).get_single_node()
        if node is not None:
            _Structure().size(node)
        return node


def values(node: yaml.Node | None) -> Any:
    """Return the values of a document. Raises ValueError with a one-line message."""
    with _in_one_line():
        loader = _READER("")
        return None if node is None else loader.construct_document(node)


@contextmanager
def _in_one_line() -> Iterator[None]:
    """Convert PyYAML's errors to ValueErrors of one line, without possible secrets."""
    try:
        yield
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {_reason(error)}") from None
    except RecursionError:
        raise ValueError("is nested deeper than any settings are; write it flat") from None


def _reason(error: yaml.YAMLError) -> str:
    """Return the reason and position of an error, without the line itself, which may contain a secret."""
    if isinstance(error, yaml.reader.ReaderError):
        return f"character {error.position + 1}: {error.reason}; remove it"
    if not isinstance(error, yaml.MarkedYAMLError):
        return "cannot be read"
    mark = error.problem_mark or error.context_mark
    place = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
    said = ", ".join(_unquoted(each) for each in (error.context, error.problem) if each)
    remedy = ""
    if "'\\t'" in said:
        remedy = "; indent with blanks"
    elif "cannot start any token" in said:
        remedy = "; put the value in quotes"
    return f"{place}{said}{remedy}"


def _unquoted(text: str) -> str:
    """Return a reason without the names that it quotes from the file. Keep signs and kinds of tokens."""
    return re.sub(r"(['\"])(?!<)[^'\"]{3,}?\1|(['\"]).*?\2", lambda match: "..." if match[1] else match[0], text)


class _Structure:
    """Traversal of a document that visits each node once, however many aliases it has."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._around: set[int] = set()

    def size(self, node: yaml.Node, key: str = "the file") -> int:
        """Return the number of values in a node, with its aliases expanded."""
        identity, line = id(node), node.start_mark.line + 1
        if identity in self._around:
            raise ValueError(f"the value of {key} is an alias of what it is in, from line {line} on; write it itself")
        if identity not in self._sizes:
            self._around.add(identity)
            self._sizes[identity] = size = self._counted(node, key)
            self._around.remove(identity)
            if size > MOST_VALUES:
                raise ValueError(f"the value of {key}, line {line}, stands for over {MOST_VALUES} values; write fewer")
        return self._sizes[identity]

    def _counted(self, node: yaml.Node, key: str) -> int:
        if isinstance(node, yaml.SequenceNode):
            return 1 + sum(self.size(each, key) for each in node.value)
        if not isinstance(node, yaml.MappingNode):
            return 1 + len(node.value) // CHARACTERS
        lines: dict[str, int] = {}
        size = 1
        for name_node, value in node.value:
            name, line = str(name_node.value), name_node.start_mark.line + 1
            if name in lines:
                raise ValueError(f"the key {name} is in lines {lines[name]} and {line}; write it once")
            lines[name] = line
            size += 1 + self.size(value, name)
        return size


@dataclass(frozen=True)
class Written:
    """Value that YAML reads as another type than text."""

    path: Path
    """Path of the value."""
    text: str
    """Text in the file."""
    tag: str
    """Type that YAML reads it as."""
    value: object
    """Value that YAML reads; None if it cannot be read."""
    is_shown: bool
    """True if messages may show it, because it is not a secret."""


def entries(node: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    """Return the keys and values of a mapping; an empty list for any other node."""
    return [(str(key.value), value) for key, value in node.value] if isinstance(node, yaml.MappingNode) else []


def written(node: yaml.Node, path: Path, listed: Sequence[yaml.Node] = ()) -> Iterator[Written]:
    """Yield all values at or below a path that YAML does not read as text. `listed` is the list that contains the
    node."""
    for key, value in entries(node):
        yield from written(value, (*path, key))
    if isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from written(value, (*path, index), node.value)
    tag = node.tag.rpartition(":")[2]
    if not isinstance(node, yaml.ScalarNode) or tag not in READ_BY_YAML:
        return
    loader = _READER("")
    try:
        read = loader.construct_object(node)
    except (ValueError, yaml.YAMLError):
        read = None
    words = [str(each.value) for each in listed if isinstance(each, yaml.ScalarNode)]
    is_secret = "secrets" in path or is_in(words) or is_in(node.value, str(path[-1]))
    yield Written(path, node.value, tag, read, is_shown=not is_secret)


def changed(each: Written) -> Problem | None:
    """Return a problem if YAML changes the value (e.g. `010` becomes 8), else None."""
    key, is_text = each.path[-1], not set(TEXTS).isdisjoint(each.path[-2:])
    if each.tag == "binary":
        return Problem("yaml.value.binary", each.path, "is read as bytes; write the text itself, in quotes")
    if each.tag == "bool":
        message = f"{each.text} is read as {each.value} or as a text; write true or false, or put it in quotes"
        return None if each.text.lower() in BOOLEANS else Problem("yaml.value.bool", each.path, message.lower())
    if each.value is None:
        what = "date" if each.tag == "timestamp" else "number that can be read"
        return Problem(
            "yaml.value.unreadable",
            each.path,
            f"is no {what}; put it in quotes where it is a text, or write a shorter one",
        )
    is_date = each.tag == "timestamp"
    if not is_date and (str(each.value) == each.text if is_text else _is_decimal(each)):
        return None
    entry = f"`{key}: '{each.text}'`" if isinstance(key, str) else f"`- '{each.text}'`"
    other = f"{each.text} is read as {'a date' if is_date else each.value}"
    read = other if each.is_shown else "is read as another than is written"
    quoted = f"put it in quotes: {entry}" if each.is_shown else "put it in quotes"
    decimal = "" if is_text or is_date else "write a number in decimal, without 0 in front; if it is a text, "
    return Problem("yaml.value.changed", each.path, f"{read}; {decimal}{quoted}")


def _is_decimal(each: Written) -> bool:
    """Return True if a number equals its text read as decimal."""
    if not isinstance(each.value, int | float) or each.text.lstrip("+-").startswith("."):
        return True
    try:
        return float(Decimal(each.text)) == float(each.value)
    except (InvalidOperation, OverflowError):
        return False
