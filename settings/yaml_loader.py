"""The YAML of a stack's file as values; refuses what its readers would drop, change or multiply in silence. Pure.

The reader follows Pulumi, whose gopkg.in/yaml.v3 mixes YAML 1.1 and 1.2: it reads `010` as 8 and `yes` as a text.
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
"""Values that a file may have, what its aliases stand for counted each time."""
CHARACTERS = 1000
"""So many of a text count as one value more."""
TEXTS = ("environment", "args", "job")
"""Keys of what programs get as text, number or not, `job` of the flags among them."""
READ_BY_YAML = ("int", "float", "bool", "timestamp", "binary")
"""Tags of what is written otherwise than it is read."""
BOOLEANS = ("true", "false")
"""Words that every reader of YAML takes for the same, in any case."""


FORMS = {
    "float": r"[-+]?(\.[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$",
    "int": r"[-+]?0([oO][0-7_]+|[xX][0-9a-fA-F_]+|[bB][01_]+)$",
    "timestamp": r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}$",
}
"""What Pulumi takes for numbers and dates, though PyYAML has some of it as texts: gopkg.in/yaml.v3, resolve.go."""


class _Reader(yaml.SafeLoader):
    """Reads values as programs get them from Pulumi."""

    def whole(self, node: yaml.ScalarNode) -> int | float:
        """A number as JSON has it, where 2.0 is 2."""
        value: float = self.construct_yaml_float(node)
        return int(value) if value.is_integer() else value


_Reader.add_constructor("tag:yaml.org,2002:float", _Reader.whole)
_READER: Any = _Reader
"""The same, of which no types are known that its methods have."""
for _tag, _form in FORMS.items():
    _READER.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_form), list("-+.0123456789"))


def document(text: str) -> yaml.Node | None:
    """What a text says, not read yet; None where it says nothing. Raises ValueError with one line."""
    with _in_one_line():
        node = _Reader(text).get_single_node()
        if node is not None:
            _Structure().size(node)
        return node


def values(node: yaml.Node | None) -> Any:
    """The values of a document. Raises ValueError with one line."""
    with _in_one_line():
        loader = _READER("")
        return None if node is None else loader.construct_document(node)


@contextmanager
def _in_one_line() -> Iterator[None]:
    """What PyYAML says, without what may be a secret."""
    try:
        yield
    except yaml.YAMLError as error:
        raise ValueError(f"not YAML: {_reason(error)}") from None
    except RecursionError:
        raise ValueError("is nested deeper than any settings are; write it flat") from None


def _reason(error: yaml.YAMLError) -> str:
    """What is wrong and where, without the line itself: it may have a secret."""
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
    """A reason without names that it quotes from the file; signs and the kinds of tokens stay."""
    return re.sub(r"(['\"])(?!<)[^'\"]{3,}?\1|(['\"]).*?\2", lambda match: "..." if match[1] else match[0], text)


class _Structure:
    """One walk through a document, to each node once, however many aliases it has."""

    def __init__(self) -> None:
        self._sizes: dict[int, int] = {}
        self._around: set[int] = set()

    def size(self, node: yaml.Node, key: str = "the file") -> int:
        """How many values a node stands for."""
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
    """A value that YAML reads as something else than text."""

    path: Path
    """Where it is."""
    text: str
    """What is written."""
    tag: str
    """What YAML takes it for."""
    value: object
    """What it is read as; None where it cannot be read."""
    is_shown: bool
    """Whether it may be shown: it is no secret."""


def entries(node: yaml.Node | None) -> list[tuple[str, yaml.Node]]:
    """The keys of a mapping, each with what it has; none where it is no mapping."""
    return [(str(key.value), value) for key, value in node.value] if isinstance(node, yaml.MappingNode) else []


def written(node: yaml.Node, path: Path, listed: Sequence[yaml.Node] = ()) -> Iterator[Written]:
    """All that stands at or below a path and is written otherwise than a text; `listed` is the list that it is of."""
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
    """What is wrong with a value that is read as another than it is written; None for one that is not."""
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
    """Whether a number is the one that somebody sees who counts in tens."""
    if not isinstance(each.value, int | float) or each.text.lstrip("+-").startswith("."):
        return True
    try:
        return float(Decimal(each.text)) == float(each.value)
    except (InvalidOperation, OverflowError):
        return False
