"""`python -m docs.config_reference` writes docs/config.md: every key of a stack's YAML, from the models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from settings.problems import field_docs
from settings.types import Section
from stack.config import StackConfig
from workloads.trainer_flags import ALIASES, FLAGS, allowed

TARGET = Path(__file__).with_name("config.md")

INTRODUCTION = """\
# Configuration

Every key of `Pulumi.<stack>.yaml`, generated from the code by `python -m docs.config_reference`.

- `pulumi config set --path 'trainyard:jobs[0].hosts' 4` changes one key; so does an editor.
- `python -m stack.config Pulumi.<stack>.yaml` checks a file; `make up` and `pulumi up` check it first.
- An unknown key is an error. A key without a default is required.
- An entry of `trainyard:jobs` is a job, or the name of one of the [examples](recipes/README.md).
- [kinds.md](kinds.md) compares the kinds of job.
- `pulumi config set --secret secrets:NAME` in `make shell STACK=...` stores a secret for a job's `secrets`.
"""

CONSTRAINTS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
}
"""Text of each constraint in the JSON schema."""


def render() -> str:
    """Return the text of docs/config.md."""
    schema = StackConfig.model_json_schema()
    models = {"": schema, **schema["$defs"]}
    for section in _descendants(Section):
        properties = models.get("" if section is StackConfig else section.__name__, {}).get("properties", {})
        for name, sentence in field_docs(section).items():
            properties.get(name, {})["description"] = sentence
    parts = [INTRODUCTION, f"## `trainyard`\n\n{_one_line(schema['description'])}\n\n{_table(schema)}"]
    for key, name in _sections(schema, models):
        parts.append(f"## {key}\n\n{_one_line(models[name]['description'])}\n\n{_table(models[name])}")
    return "\n".join([*parts, _flags()])


def _descendants(section: type[Section]) -> Iterator[type[Section]]:
    """Yield all subclasses of a section, base classes first."""
    for each in section.__subclasses__():
        yield each
        yield from _descendants(each)


def _flags() -> str:
    """Return the section about a job's `flags`."""
    rows = ["| flag | value | recipe |", "|---|---|---|"]
    for name in dict.fromkeys(name for flags in FLAGS.values() for name in flags):
        recipes = [recipe for recipe, flags in FLAGS.items() if name in flags]
        aliases = [f"`{alias}`" for alias, target in ALIASES.items() if target == name]
        keys = ", ".join([f"`{name}`", *aliases])
        values = "; ".join(dict.fromkeys(allowed(FLAGS[recipe][name]) for recipe in recipes))
        rows.append(f"| {keys} | {values} | {', '.join(recipes)} |")
    text = "`python -m trainer RECIPE --help` describes them and prints their defaults."
    return f"## `trainyard:jobs[].flags`\n\nThe flags of each recipe. {text}\n\n" + "\n".join(rows) + "\n"


def _sections(schema: dict[str, Any], models: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield heading and model of each section, outer before inner, in the order of the fields."""

    def walk(key: str, kind: str, field: dict[str, Any]) -> Iterator[tuple[str, str]]:
        names = [reference.rpartition("/")[2] for reference in _references(field)]
        for name in names:
            properties = models[name]["properties"]
            own = f", kind `{properties['kind']['const']}`" if len(names) > 1 else ""
            yield f"`{key}`{own or kind}", name
            for inner, property_ in properties.items():
                of = own.replace(", kind", f" of `{key}` kind") or kind
                yield from walk(f"{key}.{inner}{'[]' if 'items' in property_ else ''}", of, property_)

    for key, field in schema["properties"].items():
        yield from walk(f"trainyard:{key}[]" if "items" in field else f"trainyard:{key}", "", field)


def _references(field: dict[str, Any]) -> list[str]:
    """Return the models that a field refers to."""
    if "$ref" in field:
        return [field["$ref"]]
    inner = [field["items"]] if "items" in field else [*field.get("oneOf", ()), *field.get("anyOf", ())]
    return [reference for each in inner for reference in _references(each)]


def _table(model: dict[str, Any]) -> str:
    """Return a table with one row per key."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    required = model.get("required", ())
    for key, field in model["properties"].items():
        default = "required" if key in required else _default(field)
        rows.append(f"| `{key}` | {_type(field)} | {default} | {_one_line(field['description'])} |")
    return "\n".join(rows) + "\n"


def _default(field: dict[str, Any]) -> str:
    default = field.get("default", {})
    if default is None:
        return "none"
    if _references(field) and default:
        return "one with its defaults" if "items" in field else "its defaults"
    return f"`{json.dumps(default)}`".replace('"', "") if default or default == 0 else "empty"


def _type(field: dict[str, Any]) -> str:
    """Return the type of a key."""
    if _references(field):
        return "list of sections" if "items" in field else "section"
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{value}`" for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(_type(option) for option in field["anyOf"] if option.get("type") != "null")
    if field.get("type") == "object":
        return "mapping"
    if field.get("type") == "array":
        return f"list of {_type(field['items'])}" if field["items"] else "list"
    bounds = [text.format(field[name]) for name, text in CONSTRAINTS.items() if name in field]
    return ", ".join([str(field["type"]), *bounds])


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


if __name__ == "__main__":
    TARGET.write_text(render(), encoding="utf-8")
