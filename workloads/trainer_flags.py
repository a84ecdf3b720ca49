"""Flags of the trainer's recipes, to validate the flags of jobs before they run. Pure."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from settings.problem import Problem


@dataclass(frozen=True, kw_only=True)
class Flag:
    """Type and rule of one flag."""

    type: Literal["int", "float", "bool", "str"]
    default: str | int | float | bool | None = None
    """Default value; None if the environment of a pod sets it."""
    aliases: tuple[str, ...] = ()
    """Other names, from the scripts of other projects."""
    choices: tuple[str, ...] = ()
    least: float = 0
    most: float = 0
    is_exclusive: bool = False
    """True if `least` itself is not allowed."""
    pattern: str = ""
    allowed: str = ""
    """Noun phrase for texts that match the pattern."""
    max_bytes: int | None = None


def _read() -> Mapping[str, Mapping[str, Flag]]:
    text = Path(__file__).with_name("trainer_flags.json").read_text(encoding="ascii")
    recipes = json.loads(text)
    return {recipe: {name: _flag(**values) for name, values in flags.items()} for recipe, flags in recipes.items()}


def _flag(**values: Any) -> Flag:
    lists = {name: tuple(values.get(name, ())) for name in ("aliases", "choices")}
    return Flag(**{**values, **lists})


FLAGS = MappingProxyType(_read())
"""Recipe -> its flags, with `_` instead of `-`. `python -m trainer.flag_table` writes the file."""
ALIASES: Mapping[str, str] = MappingProxyType(
    {alias: name for flags in FLAGS.values() for name, flag in flags.items() for alias in flag.aliases}
)
"""Other name of a flag -> its name."""
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")

Values = Mapping[str, str | int | float | bool]


def flag_problems(recipe: str, flags: Values, *, own_image: bool = False) -> Iterator[Problem]:
    """Yield a problem for each flag that the trainer would reject: unknown, duplicate, or with an invalid value.

    A user's image may have other models, so its `arch` is not checked.
    """
    known, seen = FLAGS[recipe], dict[str, str]()
    for written, value in flags.items():
        name = _name(written, known)
        if name not in known:
            code, message = _unknown(recipe, written, known)
            yield Problem(f"job.flags.{code}", ("flags", written), message, value)
        elif name in seen:
            yield Problem(
                "job.flags.duplicate",
                ("flags", written),
                f"is the same flag as {seen[name]}; write one of the two",
                value,
            )
        elif own_image and name == "arch":
            pass
        elif wanted := _wrong(known[name], value):
            yield Problem("job.flags.wrong_value", ("flags", written), f"must be {wanted}", value)
        seen.setdefault(name, written)


def value_of(recipe: str, flags: Values, name: str) -> str | int | float | bool | None:
    """Return the value that a job gives a flag, under any of its names."""
    return next((value for written, value in flags.items() if _name(written, FLAGS[recipe]) == name), None)


def _name(written: str, known: Mapping[str, Flag]) -> str:
    name = written.replace("-", "_")
    return ALIASES[name] if ALIASES.get(name) in known else name


def _unknown(recipe: str, written: str, known: Mapping[str, Flag]) -> tuple[str, str]:
    """Return code and message for a flag that the recipe does not have."""
    name = written.replace("-", "_")
    switch = name.removeprefix("no_")
    if switch != name and switch in known:
        return "negated", f"is not a flag; write `{switch}: false`"
    others = [other for other, flags in FLAGS.items() if _name(name, flags) in flags]
    if others:
        return "of_other_recipe", f"is a flag of recipe {others[0]}, not of {recipe}; remove it"
    near = difflib.get_close_matches(name, (*known, *ALIASES), n=1, cutoff=0.8)
    near = near or [each for each in known if len(name) > 2 and each.startswith(name)]
    if near:
        return "unknown", f"is not a flag of recipe {recipe}; write {_name(near[0], known)}"
    return "unknown", f"is not a flag of recipe {recipe}; write one of {', '.join(known)}"


def _wrong(flag: Flag, value: str | int | float | bool) -> str:
    """Return the allowed values, or an empty string if the value is allowed. Numbers may be quoted: YAML reads `1e-3`
    as text."""
    if flag.type == "bool":
        return "" if isinstance(value, bool) else f"{allowed(flag)}, without quotes"
    if isinstance(value, bool):
        return f"{allowed(flag)}, in quotes where it is a word that YAML takes for true or false"
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
    return is_short and not _CONTROL.search(text) and (not flag.pattern or bool(re.fullmatch(flag.pattern, text)))


def allowed(flag: Flag) -> str:
    """Return a description of a flag's allowed values."""
    if flag.type == "bool":
        return "true or false"
    if flag.choices:
        return f"one of {', '.join(flag.choices)}"
    if flag.type == "str":
        bytes_ = f", of at most {flag.max_bytes} bytes" if flag.max_bytes else ""
        return f"{flag.allowed or 'a text without control characters'}{bytes_}"
    noun = "an integer" if flag.type == "int" else "a number"
    if flag.is_exclusive:
        return f"{noun} above {flag.least:g}, at most {_plain(flag.most)}"
    return f"{noun} from {flag.least:g} to {_plain(flag.most)}"


def _plain(number: float) -> str:
    return f"{number:g}" if number > 1e15 else f"{number:.0f}"
