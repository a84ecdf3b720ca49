"""Flags of the trainer's recipes, read from trainer_flags.json, and validation of a job's flags."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from settings.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Flag:
    """Type and allowed values of one flag."""

    type: Literal["int", "float", "bool", "str"]
    default: str | int | float | bool | None = None
    """Default value; None if a variable of the pod sets it."""
    aliases: tuple[str, ...] = ()
    """Other names of the flag, which scripts of other projects use."""
    choices: tuple[str, ...] = ()
    """Allowed texts; empty if any text is allowed."""
    least: float = 0
    """Minimum of a number."""
    most: float = 0
    """Maximum of a number."""
    is_exclusive: bool = False
    """True if `least` itself is not allowed."""
    meaning: str = ""
    """Noun phrase that explains the number, such as "a share of the run's steps"; empty if its bounds explain it."""
    pattern: str = ""
    """Regular expression that a text must match."""
    allowed: str = ""
    """Noun phrase for texts that match the pattern."""
    max_bytes: int | None = None
    """Maximum length of a text in UTF-8."""
    sizes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """Name of a preset -> sizes of the model."""
    suffixes: Mapping[str, str] = field(default_factory=dict)
    """Content of a file in a folder of texts -> suffix of its name."""


def _load_flags() -> Mapping[str, Mapping[str, Flag]]:
    recipes = json.loads(Path(__file__).with_name("trainer_flags.json").read_text(encoding="ascii"))
    return {recipe: {name: _flag(**values) for name, values in flags.items()} for recipe, flags in recipes.items()}


def _flag(**values: Any) -> Flag:
    lists = {name: tuple(values.get(name, ())) for name in ("aliases", "choices")}
    return Flag(**{**values, **lists})


FLAGS = MappingProxyType(_load_flags())
"""Recipe -> name of a flag, with `_` instead of `-` -> the flag. `python -m docs.flag_table` writes the JSON file."""
ALIASES: Mapping[str, str] = MappingProxyType(
    {alias: name for flags in FLAGS.values() for name, flag in flags.items() for alias in flag.aliases}
)
"""Alias of a flag -> its name."""
GROUPS_FLAG = "parallelism"
"""Name of the flag with the sizes of groups of ranks."""
GROUP_NAMES = ("data", "shard", "tensor")
"""Names of groups of ranks, as in trainer/language/sizes.py."""
STEP_RANGE_FLAG = "profile_steps"
"""Name of the flag with a range A-B of steps."""
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f]")

Values = Mapping[str, str | int | float | bool]


def flag_problems(recipe: str, flags: Values, *, has_user_image: bool = False) -> Iterator[Problem]:
    """Yield a problem for each flag that the trainer would reject: unknown, duplicate, or with an invalid value.

    A user's image may have other models, so do not check its `arch`.
    """
    recipe_flags, keys = FLAGS[recipe], dict[str, str]()
    for key, value in flags.items():
        name = _canonical_name(key, recipe_flags)
        if name not in recipe_flags:
            code, message = _unknown_flag(recipe, key, recipe_flags)
            yield Problem(f"job.flags.{code}", ("flags", key), message, value)
        elif name in keys:
            message = f"is the same flag as {keys[name]}; write one of the two"
            yield Problem("job.flags.duplicate", ("flags", key), message, value)
        elif has_user_image and name == "arch":
            pass
        elif requirement := _unmet_requirement(recipe_flags[name], value) or _unordered(recipe_flags, name, value):
            message = _group_problem(str(value)) if name == GROUPS_FLAG else ""
            yield Problem("job.flags.wrong_value", ("flags", key), f"{message or 'must be'} {requirement}", value)
        keys.setdefault(name, key)


def value_of(recipe: str, flags: Values, name: str) -> str | int | float | bool | None:
    """Return the value of a flag in a job's settings, where it may have an alias; None if it is not set."""
    return next((value for key, value in flags.items() if _canonical_name(key, FLAGS[recipe]) == name), None)


def _canonical_name(key: str, recipe_flags: Mapping[str, Flag]) -> str:
    name = key.replace("-", "_")
    return ALIASES[name] if ALIASES.get(name) in recipe_flags else name


def _unknown_flag(recipe: str, key: str, recipe_flags: Mapping[str, Flag]) -> tuple[str, str]:
    """Return code and message for a flag that the recipe does not have."""
    name = key.replace("-", "_")
    positive_name = name.removeprefix("no_")
    if positive_name != name and positive_name in recipe_flags:
        return "negated", f"is not a flag; write `{positive_name}: false`"
    others = [other for other, flags in FLAGS.items() if _canonical_name(name, flags) in flags]
    if others:
        return "only_for_other_recipe", f"is a flag of recipe {others[0]}, not of {recipe}; remove this flag"
    similar = difflib.get_close_matches(name, (*recipe_flags, *ALIASES), n=1, cutoff=0.8)
    similar = similar or [flag for flag in recipe_flags if len(name) > 2 and flag.startswith(name)]
    if similar:
        return "unknown", f"is not a flag of recipe {recipe}; write {_canonical_name(similar[0], recipe_flags)}"
    return "unknown", f"is not a flag of recipe {recipe}; write one of {', '.join(recipe_flags)}"


def _unmet_requirement(flag: Flag, value: str | int | float | bool) -> str:
    """Return the allowed values if `value` is not one of them, else an empty string.

    A number may be quoted, because YAML reads `1e-3` as text.
    """
    if flag.type == "bool":
        return "" if isinstance(value, bool) else f"{allowed(flag)}, without quotes"
    if isinstance(value, bool):
        return f"{allowed(flag)}, in quotes if YAML reads the word as true or false"
    if flag.choices:
        return "" if value in flag.choices else allowed(flag)
    if flag.type == "str":
        return "" if _matches(flag, str(value)) else allowed(flag)
    try:
        number = int(str(value)) if flag.type == "int" else float(value)
    except (OverflowError, ValueError):
        return allowed(flag)
    is_low = number <= flag.least if flag.is_exclusive else number < flag.least
    return allowed(flag) if is_low or not number <= flag.most else ""


def _matches(flag: Flag, text: str) -> bool:
    is_short = flag.max_bytes is None or len(text.encode(errors="replace")) <= flag.max_bytes
    has_control = bool(_CONTROL_CHARACTERS.search(text))
    return is_short and not has_control and (not flag.pattern or bool(re.fullmatch(flag.pattern, text)))


def _group_problem(text: str) -> str:
    """Return the problem of the first invalid group in `text`, up to the word "write"; empty if no group is invalid."""
    for name, is_pair, size in (pair.partition("=") for pair in text.split(",")):
        if is_pair and name not in GROUP_NAMES:
            return f"{name} is not a group; write"
        if is_pair and size != "auto" and not re.fullmatch("[1-9][0-9]{0,5}", size):
            return f"{name} is {size}, which must be from 1 to 999999, or auto; write"
    return ""


def _unordered(recipe_flags: Mapping[str, Flag], name: str, value: object) -> str:
    """Return the allowed values if a range of steps `A-B` is out of order or has too high a step, else an empty string.

    `value` already matches the flag's pattern.
    """
    if name != STEP_RANGE_FLAG or not value:
        return ""
    first, _, last = str(value).partition("-")
    is_ordered = 1 <= int(first) <= int(last) <= recipe_flags["log_steps"].most
    return "" if is_ordered else allowed(recipe_flags[STEP_RANGE_FLAG])


def allowed(flag: Flag) -> str:
    """Return a description of a flag's allowed values."""
    if flag.type == "bool":
        return "true or false"
    if flag.choices:
        return f"one of {', '.join(flag.choices)}"
    if flag.type == "str":
        limit = f", of at most {flag.max_bytes} bytes" if flag.max_bytes else ""
        return f"{flag.allowed or 'text without control characters'}{limit}"
    noun = "an integer" if flag.type == "int" else "a number"
    if flag.is_exclusive:
        return f"{noun} above {flag.least:g}, at most {_format(flag.most)}"
    meaning = f", {flag.meaning}" if flag.meaning else ""
    return f"{noun} from {flag.least:g} to {_format(flag.most)}{meaning}"


def _format(number: float) -> str:
    return f"{number:g}" if number > 1e15 else f"{number:.0f}"
