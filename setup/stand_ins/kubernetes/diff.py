"""What changes between the live object and a program's inputs, property by property, and what of it replaces."""

import re
from collections.abc import Sequence
from typing import Any

from pulumi.runtime.proto import provider_pb2

from setup.stand_ins.kubernetes.objects import Object
from setup.stand_ins.kubernetes.values import Unknown

Path = tuple[str | int, ...]
Kind = provider_pb2.PropertyDiff


class _Missing:
    """A key that is not there, which differs from one whose value is null."""


MISSING = _Missing()
REPLACING = {Kind.ADD: Kind.ADD_REPLACE, Kind.DELETE: Kind.DELETE_REPLACE, Kind.UPDATE: Kind.UPDATE_REPLACE}


def merge_patch(old: Object, new: Object) -> Object:
    """The JSON merge patch (RFC 7386) from one object to the other; what is not known yet stands there as null."""
    patch: Object = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key, MISSING)
        if isinstance(before, dict) and isinstance(value, dict):
            if inner := merge_patch(before, value):
                patch[key] = inner
        elif not same(before, value):
            patch[key] = _without_unknowns(value)
    return patch


def same(one: Any, other: Any) -> bool:
    """Equality of JSON values: 1 and 1.0 are the same, 1 and true are not."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def _without_unknowns(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_unknowns(element) for key, element in value.items()}
    if isinstance(value, list):
        return [_without_unknowns(element) for element in value]
    return None if isinstance(value, Unknown) else value


def detailed_diff(
    patch: Object, live: Object, new_inputs: Object, old_inputs: Object, force_new: Sequence[str]
) -> dict[str, provider_pb2.PropertyDiff]:
    """Turn a merge patch into Pulumi's property paths, each with its kind of change."""
    found: dict[str, provider_pb2.PropertyDiff] = {}
    _add_map((), patch, live, new_inputs, old_inputs, found, [_elements(path) for path in force_new], in_list=False)
    return found


def _add(
    path: Path,
    patched: Any,
    old: Any,
    new: Any,
    old_input: Any,
    found: dict[str, Any],
    force: list[Path],
    in_list: bool,
) -> None:
    if new is MISSING and (patched is not None or old_input is MISSING):
        return  # neither set now nor before by the program: the server's own
    if patched is None and not isinstance(new, Unknown):
        kind, input_diff = Kind.DELETE, True
    else:
        kind, input_diff = (Kind.ADD if old is MISSING else Kind.UPDATE), False
        if patched is not None and old is not MISSING:
            if isinstance(patched, dict) and isinstance(old, dict):
                _add_map(path, patched, old, _as_dict(new), _as_dict(old_input), found, force, in_list)
                return
            if isinstance(patched, list) and isinstance(old, list):
                _add_list(path, patched, old, _as_list(new), _as_list(old_input), found, force)
                return
            if same(patched, old):
                return
    if any(_reaches(_nested(path, patched), wanted) for wanted in force):
        kind = REPLACING[kind]
    found[render(path)] = provider_pb2.PropertyDiff(kind=kind, inputDiff=input_diff)


def _add_map(
    path: Path, patch: Object, old: Object, new: Object, old_input: Object, found: dict[str, Any], force: list[Path],
    in_list: bool,
) -> None:  # fmt: skip
    removed = [key for key in old if key not in patch] if in_list else []  # a merge patch sends list elements whole
    for key in [*patch, *removed]:
        values = (old.get(key, MISSING), new.get(key, MISSING), old_input.get(key, MISSING))
        _add((*path, key), patch.get(key), *values, found, force, in_list)


def _add_list(
    path: Path, patched: list[Any], old: list[Any], new: list[Any], old_input: list[Any], found: dict[str, Any],
    force: list[Path],
) -> None:  # fmt: skip
    for index in range(max(len(patched), len(old))):
        before = old[index] if index < len(old) else MISSING
        now, was, after = (values[index] if index < len(values) else None for values in (new, old_input, patched))
        _add((*path, index), after, before, now, was, found, force, in_list=True)


def _as_dict(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def render(path: Path) -> str:
    """Pulumi's spelling of a property path: `spec.template.spec.containers[0].image`."""
    text = ""
    for element in path:
        if isinstance(element, int):
            text += f"[{element}]"
        elif re.search(r'[."\[\]]', element):
            text += '["{}"]'.format(element.replace('"', '\\"'))
        else:
            text += f".{element}" if text else element
    return text


def _elements(force_new: str) -> Path:
    return tuple(force_new.removeprefix(".").replace("[*]", ".*").split("."))


def _nested(path: Path, value: Any) -> Any:
    """The value wrapped so that the path leads to it: a pattern may name something above it or something in it."""
    for element in reversed(path):
        value = [value] if isinstance(element, int) else {element: value}
    return value


def _reaches(document: Any, pattern: Path) -> bool:
    if not pattern:
        return True
    if pattern[0] == "*":
        return isinstance(document, list) and any(_reaches(element, pattern[1:]) for element in document)
    return isinstance(document, dict) and pattern[0] in document and _reaches(document[pattern[0]], pattern[1:])


def parse_property_path(text: str) -> Path:
    """Read Pulumi's spelling of a property path, as in `ignoreChanges`; `*` stands for any one element."""
    path: list[str | int] = []
    for match in re.finditer(r'\[(\d+)\]|\["((?:[^"\\]|\\.)*)"\]|\[(\*)\]|([^.\[\]]+)', text):
        index, quoted, star, plain = match.groups()
        if index is not None:
            path.append(int(index))
        else:
            path.append((quoted or "").replace('\\"', '"') if quoted is not None else star or plain)
    return tuple(path)


def is_ignored(path: str, ignore_changes: Sequence[str]) -> bool:
    """Whether one of the ignored paths contains this one."""
    elements = parse_property_path(path)
    for ignored in map(parse_property_path, ignore_changes):
        if len(ignored) <= len(elements) and all(
            want in ("*", have) for want, have in zip(ignored, elements, strict=False)
        ):
            return True
    return False
