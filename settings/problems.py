"""Conversion of pydantic's errors to problems with the key, the value, the allowed values and the remedy."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import pairwise
from math import inf, isfinite
from types import MappingProxyType
from typing import Any, get_args

from annotated_types import Ge, Gt, Le
from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from settings.problem import Path, Problem
from settings.text import counted

SYNONYMS = {
    "backoff_limit": "restarts",
    "max_restarts": "restarts",
    "command": "script",
    "entrypoint": "script",
    "count": "nodes",
    "num_nodes": "nodes",
    "env": "environment",
    "gpu_type": "accelerator",
    "pool": "accelerator",
    "node_pool": "accelerator",
    "gpus": "accelerators_per_host",
    "gpus_per_node": "accelerators_per_host",
    "instance_type": "machine_type",
    "nnodes": "hosts",
    "nodes": "hosts",
    "replicas": "hosts",
    "workers": "hosts",
    "node_pools": "pools",
    "nproc_per_node": "processes_per_host",
    "preemptible": "capacity",
    "spot": "capacity",
    "shm_size": "shared_memory",
    "batch_size": "flags.batch_size",
    "cpu": "resources.cpu",
    "cpus": "resources.cpu",
    "deadline": "deadline_seconds",
    "epochs": "flags.epochs",
    "learning_rate": "flags.learning_rate",
    "lr": "flags.learning_rate",
    "max": "max_hosts",
    "mem": "resources.memory",
    "memory": "resources.memory",
    "min": "min_hosts",
    "processes": "processes_per_host",
    "shm": "shared_memory",
    "timeout": "deadline_seconds",
    "wandb": "flags.wandb",
}
"""Trainyard's keys by their names in Kubernetes, torchrun, the clouds and other launchers.

`section.key` is a key inside a section. `TIME_TO_LIVE` has the keys for `ttl`: the stack's TTL
or a job's deadline. Jobs have no TTL, because `pulumi up` would recreate a deleted job.
"""
TIME_TO_LIVE = ("ttl_hours", "deadline_seconds")


def unknown_key(key: str, allowed: Sequence[str], inner_keys: Mapping[str, str] | None = None) -> str:
    """Return the error message for an unknown key. `inner_keys` maps the keys of nested sections to `section.key`."""
    return f"unknown key; {_remedy(key, allowed, inner_keys or {})}; allowed here: {', '.join(allowed)}"


def _remedy(key: str, allowed: Sequence[str], inner_keys: Mapping[str, str]) -> str:
    normalized = key.lower().replace("-", "_")
    known = SYNONYMS.get(normalized) or inner_keys.get(normalized, normalized)
    candidates = TIME_TO_LIVE if normalized == "ttl" else (known,)
    for candidate in candidates:
        section, dot, inner = candidate.partition(".")
        if section in allowed:
            return f"write {candidate}, which is `{section}: {{{inner}: ...}}`" if dot else f"write {candidate}"
        if inner in allowed:
            return f"write {inner}"
    similar = get_close_matches(key, allowed, n=1, cutoff=0.7)
    return f"write {similar[0]}" if similar else "remove this key"


def field_docs(section: type[BaseModel]) -> dict[str, str]:
    """Return the docstring of each field of a section and of its base classes.

    Pydantic's `use_attribute_docstrings` parses the source at each import. That adds a quarter to the import time of
    the settings. Only error messages and the reference need these texts.
    """
    docs: dict[str, str] = {}
    for model in reversed(section.__mro__):
        if not issubclass(model, BaseModel) or model is BaseModel:
            continue
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
        assert isinstance(definition, ast.ClassDef)
        for field, following in pairwise(definition.body):
            match field, following:
                case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(docstring))):
                    docs[name] = inspect.cleandoc(docstring)
    return docs


SKIP_CHECK_HINT = "; `check_availability: false` of the platform skips this check"
"""Ending of the messages of checks that `check_availability: false` skips."""

SECRETS = "secrets"
"""Settings key whose values messages never show."""

CODE_NAMES = {
    "extra_forbidden": "unknown_key",
    "union_tag_not_found": "missing_kind",
    "union_tag_invalid": "unknown_kind",
}
"""Pydantic's error type -> its name in codes. Other error types keep their names."""

BOUND_ERRORS = ("greater_than", "greater_than_equal", "less_than", "less_than_equal", "finite_number")

MAPPINGS = {
    "environment": "names of variables, as in `NCCL_DEBUG: INFO` or `A: '1'`",
    "flags": "flags of the trainer without dashes, listed in docs/config.md, as in `epochs: 2`",
    "secrets": "names of variables, as in `WANDB_API_KEY: wandb`",
}
"""Settings key of a mapping with arbitrary keys -> description of those keys."""

DURATION = re.compile(r"(\d{1,9}) ?([smhd])\w*")
"""Duration with its unit."""
DURATION_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
KEY_UNIT_SECONDS = {"seconds": 1, "hours": 3600}
"""Seconds of each unit that a key can end with, such as `deadline_seconds`."""


class ConfigError(ValueError):
    """Invalid configuration; the message has one line for each problem."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        super().__init__("\n".join(str(problem) for problem in problems))
        self.problems = tuple(problems)


def error_text(name: str, error: ValueError) -> str:
    """Return an error's message. A ConfigError's message starts with the settings' name and the number of problems."""
    count = f"{name}: {counted(len(error.problems), 'problem')}\n" if isinstance(error, ConfigError) else ""
    return f"{count}{error}"


def problems_of(
    error: ValidationError, model: type[BaseModel], number_texts: Mapping[Path, str] = MappingProxyType({})
) -> list[Problem]:
    """Return the problems that pydantic found. `number_texts` maps the path of a number to its text in the file."""
    errors = error.errors(include_url=False)
    # Skip fields whose default depends on an invalid field. The invalid field has an error of its own.
    return [_problem(each, model, number_texts) for each in errors if each["type"] != "default_factory_not_called"]


def _problem(error: ErrorDetails, model: type[BaseModel], number_texts: Mapping[Path, str]) -> Problem:
    location = _locate(model, error["loc"])
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    # The exceptions of validators have codes: settings.problem.Invalid and infra.hardware.machines.HardwareError.
    name = getattr(context.get("error"), "code", CODE_NAMES.get(kind, kind))
    code = f"settings.{name}"
    if SECRETS in location.path:
        # The value may be a secret instead of its name, and must not reach a log.
        value = PydanticUndefined
    if kind == "missing":
        return Problem(code, location.path, f"is missing: {_field_doc(location)}; add {_example(location)}")
    if kind == "extra_forbidden":
        message = unknown_key(str(location.path[-1]), location.siblings, location.inner_keys)
        return Problem(code, location.path, message, value)
    if kind in ("union_tag_not_found", "union_tag_invalid"):
        tag = context.get("tag", PydanticUndefined)
        reason = "is missing" if tag is PydanticUndefined else "is unknown"
        tags = ", ".join(filter(None, map(_tag, location.sections)))
        return Problem(code, (*location.path, "kind"), f"{reason}; write one of {tags}", tag)
    if kind == "string_type" and _is_number(value):
        text = number_texts.get(location.path, "")
        return Problem(
            code, location.path, _needs_string(location, text if _equals(text, value) else str(value)), value
        )
    message = _invalid_value(kind, str(error["msg"]), context, location, value)
    if error["loc"][-1] == "[key]":
        # Show no value, because the value is the invalid key, which is already in the path.
        return Problem(f"settings.key.{name}", location.path, f"the name {message}")
    return Problem(code, location.path, message, value)


@dataclass(frozen=True)
class _Location:
    """Location of an error in the model."""

    path: Path
    field: FieldInfo | None
    siblings: tuple[str, ...]
    sections: tuple[type[BaseModel], ...]
    owner: type[BaseModel] | None = None
    """Section that contains the field."""
    inner_keys: Mapping[str, str] | None = None
    """Keys of nested sections -> `section.key`. A user may write such a key at this level by mistake."""


def _locate(model: type[BaseModel], pydantic_path: Sequence[str | int]) -> _Location:
    """Return the location of a pydantic error. In pydantic's path, the tags of unions are between the keys."""
    sections: tuple[type[BaseModel], ...] = (model,)
    location = _Location((), None, (), sections)
    for part in pydantic_path:
        tagged = [section for section in sections if len(sections) > 1 and part == _tag(section)]
        if tagged:
            sections = (tagged[0],)
        elif part != "[key]":
            siblings = tuple(sections[0].model_fields) if len(sections) == 1 and isinstance(part, str) else ()
            field = sections[0].model_fields.get(str(part)) if siblings else None
            owner = sections[0] if field else location.owner
            inner_keys = getattr(sections[0], "INNER_KEYS", {}) if siblings else {}
            if isinstance(part, str):
                sections = tuple(_sections(field.annotation)) if field else ()
            location = _Location((*location.path, part), field or location.field, siblings, sections, owner, inner_keys)
    return location


def _sections(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models inside a type."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _sections(argument)


def _tag(section: type[BaseModel]) -> str | None:
    """Return the `kind` that selects a section of a union."""
    field = section.model_fields.get("kind")
    return str(get_args(field.annotation)[0]) if field else None


def _field_doc(location: _Location) -> str:
    docs = field_docs(location.owner) if location.owner else {}
    key = next((part for part in reversed(location.path) if part in docs), "")
    return docs.get(str(key), "").rstrip(".").replace("\n", " ")


def _example(location: _Location) -> str:
    """Return the key with a valid value: the field's example, default or minimum."""
    key, field = location.path[-1], location.field
    if field is None:
        return f"`{key}`"
    if field.examples:
        value = field.examples[0]
    elif not field.is_required() and field.default not in (None, PydanticUndefined):
        value = field.default
    else:
        value = next((bound.ge for bound in _constraints(field) if isinstance(bound, Ge)), "...")
    if isinstance(value, str) and value.replace(".", "").isdecimal():
        return f"`{key}: '{value}'`"
    return f"`{key}: {str(value).lower() if isinstance(value, bool) else value}`"


def _invalid_value(kind: str, message: str, context: dict[str, Any], location: _Location, value: object) -> str:
    if kind == "value_error":
        return str(context["error"])
    if kind == "literal_error":
        return f"is unknown; write {_legal_values(context['expected'], value)}"
    if kind.startswith(("int_", "float_")) or kind in BOUND_ERRORS:
        nearest = _nearest_number(location, value)
        return f"must be {_range(location.field)}" + (f"; write {nearest}" if nearest else "")
    if kind in ("string_too_long", "string_too_short"):
        limit = f"at most {context['max_length']}" if "max_length" in context else f"at least {context['min_length']}"
        return f"must have {limit} characters; write {_example(location)}"
    if kind == "string_type":
        return _needs_string(location, "")
    if kind in ("model_type", "dict_type"):
        keys = ", ".join(key for section in location.sections[:1] for key in section.model_fields)
        keys = keys or MAPPINGS.get(str(location.path[-1]), "any names")
        if len(location.sections) > 1:
            keys = f"kind (one of {', '.join(filter(None, map(_tag, location.sections)))}) and the keys of that kind"
        return f"must be a mapping, one `key: value` per line; keys: {keys}"
    if kind.startswith("bool_"):
        return f"must be true or false, without quotes; write {_example(location)}"
    if kind == "tuple_type":
        return "must be a list; start each entry with `- `"
    return f"is not allowed: {message}; {_field_doc(location)}"


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _equals(text: str, value: object) -> bool:
    try:
        return float(text) == value
    except ValueError:
        return False


def _needs_string(location: _Location, text: str) -> str:
    """Return the message for a value that must be a string. Show `text` in quotes, or an example if `text` is empty."""
    example = f"`{location.path[-1]}: '{text}'`" if text and isinstance(location.path[-1], str) else _example(location)
    return f"must be a string, in quotes if YAML reads another type; write {example}"


def _legal_values(expected: str, value: object) -> str:
    """Format pydantic's list of legal values. If only the quotes are wrong, add the value with the correct quotes."""
    legal = expected.replace(" or ", ", ").split(", ")
    values = "one of " + ", ".join(legal).replace("'", "")
    if f"'{value}'" in legal:
        return f"{values}, in quotes: '{value}'"
    return f"{values}, without quotes: {value}" if isinstance(value, str) and value in legal else values


def _nearest_number(location: _Location, value: object) -> str:
    """Return an entry to write instead of the value, such as `nodes: 2`. Return "" for a value above the maximum.

    The entry has the nearest valid number, or the field's example if the nearest number is not obvious.
    """
    exclusive_min, minimum, maximum = _bounds(location.field)
    key = str(location.path[-1])
    unit = KEY_UNIT_SECONDS.get(key.rpartition("_")[2])
    duration = DURATION.fullmatch(value) if isinstance(value, str) else None
    if unit and duration:
        value = int(duration[1]) * DURATION_UNIT_SECONDS[duration[2]] / unit
    try:
        number = float(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else inf
    except (ValueError, OverflowError):
        number = inf
    if maximum is not None and isfinite(number) and number > maximum:
        return ""
    is_below = exclusive_min is not None and number <= exclusive_min
    if not isfinite(number) or is_below or (maximum is None and number < (minimum or 0)):
        return _example(location)
    number = float(min(max(number, -inf if minimum is None else minimum), inf if maximum is None else maximum))
    if exclusive_min is None or number.is_integer():
        number = round(number)
    return f"`{key}: {number}`{', without quotes' if isinstance(value, str) else ''}"


def _bounds(field: FieldInfo | None) -> tuple[float | None, float | None, float | None]:
    """Return a field's exclusive minimum, minimum and maximum. Each is None if unset."""
    bounds: dict[type, Any] = {type(bound): bound for bound in _constraints(field)}
    names = ((Gt, "gt"), (Ge, "ge"), (Le, "le"))
    exclusive_min, minimum, maximum = (getattr(bounds.get(kind), name, None) for kind, name in names)
    return exclusive_min, minimum, maximum


def _range(field: FieldInfo | None) -> str:
    exclusive_min, minimum, maximum = _bounds(field)
    if exclusive_min is not None:
        return f"a number above {exclusive_min}" + (f" and at most {maximum}" if maximum is not None else "")
    if minimum is not None and maximum is not None:
        return f"an integer from {minimum} to {maximum}"
    return f"an integer of at least {minimum}" if minimum is not None else "an integer"


def _constraints(field: FieldInfo | None) -> Iterator[object]:
    """Yield the constraints of a field, including constraints inside an optional type."""
    if field is not None:
        yield from field.metadata
        for member in get_args(field.annotation):
            for inner in getattr(member, "__metadata__", ()):
                yield from _constraints(inner) if isinstance(inner, FieldInfo) else (inner,)
