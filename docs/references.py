"""`python -m docs.references` writes the reference pages: commands, config, hardware, policy, stacks/, versions."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import click

from commands.cli import cli
from commands.interrupts import MEANINGS
from docs import hardware_reference, versions_reference
from infra.make_command import DEFAULT_STACK
from policy.catalogue import RULES
from settings.problems import field_docs
from settings.types import Section
from stack.config import StackConfig, load_file
from stack.language_estimate import language_estimates
from workloads.command import host_command, process_layout
from workloads.trainer_flags import ALIASES, FLAGS, allowed

FOLDER = Path(__file__).parent
PROJECT = FOLDER.parent
STACKS = ("dev", "eks", "eks-p5", "gke-h200", "gke-tpu", "gke-v100", "local")
"""Stacks that come with the project. Users' own stacks have no page."""
CONSTRAINTS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
}
"""Text of each constraint in the JSON schema."""

COMMANDS_INTRODUCTION = """\
# Commands

Commands, options and exit statuses of `trainyard`, generated from the code by `python -m docs.references`.

There are three ways to run the program of a checkout:

- `make install` links the program into `~/.local/bin`.
- `uv tool install .` or `pipx install .` installs the program in its own environment. From any folder, it then runs the
  commands of that checkout.
- `make TARGET` needs no installation. The targets that work on a stack are aliases. Each target prints the command that
  it runs: `make logs JOB=digits` runs `trainyard logs digits`.

`trainyard completion bash` prints a script that completes commands, options and stacks in a shell.
"""
STATUS_INTRODUCTION = """\
## Exit statuses

| status | meaning |
|---|---|
"""

CONFIG_INTRODUCTION = """\
# Settings

Every key of `Pulumi.<stack>.yaml`, generated from the code by `python -m docs.references`.

- To change a key, edit the file, or run `pulumi config set --path 'trainyard:jobs[0].hosts' 4`.
- `python -m stack.config Pulumi.<stack>.yaml` checks a file; `make up` and `pulumi up` check it first.
- An unknown key is an error. A key whose default is "required" must be set.
- An entry of `trainyard:jobs` is a job, or the name of one of the [examples](recipes/README.md).
- [kinds.md](kinds.md) compares the kinds of job.
- `pulumi config set --secret secrets:NAME` in `make shell STACK=...` stores a secret for a job's `secrets`.
"""

POLICY_INTRODUCTION = """\
# Policy

Rules for stacks, generated from `policy/` by `python -m docs.references`.

`make preview` checks the rules. A Pulumi policy pack checks the same rules (`pulumi preview --policy-pack
policy/pack`). A `mandatory` finding fails the preview; an `advisory` finding is only shown.

```yaml
trainyard:policy:
  levels: {images-by-digest: mandatory}
  exceptions:
    - {rule: limits-set, resource: digits-job, reason: measured without limits for a week}
  may_replace: [gpus]
```

`levels` changes the level of a rule in a stack; the level `disabled` switches the rule off. `exceptions` allows a
resource to break a rule, for a reason that every preview shows. `may_replace` lists the pools with a running job and
the buckets that a plan may replace or delete.
"""


def pages() -> dict[str, str]:
    """Return the text of each page by its path in this folder."""
    return {
        "commands.md": commands_page(),
        "config.md": config_page(),
        "hardware.md": hardware_reference.render(),
        "policy.md": policy_page(),
        **{f"stacks/{stack}.md": stack_page(stack) for stack in STACKS},
        "versions.md": versions_reference.render(),
    }


def commands_page() -> str:
    """Return the text of docs/commands.md."""
    rows = "".join(f"| {status.value} | {meaning} |\n" for status, meaning in MEANINGS.items())
    sections = [_command_section(name, command) for name, command in cli.commands.items()]
    return "\n".join([COMMANDS_INTRODUCTION, *sections, STATUS_INTRODUCTION + rows])


def _command_section(name: str, command: click.Command) -> str:
    context = click.Context(command, info_name=f"trainyard {name}", help_option_names=[])
    usage = f"```\n{' '.join([f'trainyard {name}', *command.collect_usage_pieces(context)])}\n```\n"
    text, _, examples = (command.help or "").partition("\b\n")
    sentences = " ".join(text.split())
    options = "".join(_option_rows(command, context))
    table = f"\n| option | meaning |\n|---|---|\n{options}" if options else ""
    lines = [line.strip() for line in examples.splitlines()[1:] if line.strip()]
    return "\n".join([f"## `{name}`\n", f"{sentences}\n", usage + table, "```sh", *lines, "```\n"])


def _option_rows(command: click.Command, context: click.Context) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter, click.Option) and (record := parameter.get_help_record(context)):
            names, meaning = record
            yield f"| `{names}` | {' '.join(meaning.split()).replace('|', chr(92) + '|')} |\n"


def config_page() -> str:
    """Return the text of docs/config.md."""
    schema = StackConfig.model_json_schema()
    models = {"": schema, **schema["$defs"]}
    for section in _descendants(Section):
        properties = models.get("" if section is StackConfig else section.__name__, {}).get("properties", {})
        for name, sentence in field_docs(section).items():
            properties.get(name, {})["description"] = sentence
    parts = [CONFIG_INTRODUCTION, f"## `trainyard`\n\n{_one_line(schema['description'])}\n\n{_table(schema)}"]
    for key, name in _sections(schema, models):
        parts.append(f"## {key}\n\n{_one_line(models[name]['description'])}\n\n{_table(models[name])}")
    return "\n".join([*parts, _flags_section()])


def _descendants(section: type[Section]) -> Iterator[type[Section]]:
    """Yield all subclasses of a section, base classes first."""
    for each in section.__subclasses__():
        yield each
        yield from _descendants(each)


def _flags_section() -> str:
    rows = ["| flag | value | recipe |", "|---|---|---|"]
    for name in dict.fromkeys(name for flags in FLAGS.values() for name in flags):
        values = {recipe: allowed(flags[name]) for recipe, flags in FLAGS.items() if name in flags}
        aliases = [f"`{alias}`" for alias, target in ALIASES.items() if target == name]
        keys = ", ".join([f"`{name}`", *aliases])
        rows.append(f"| {keys} | {_by_recipe(values)} | {', '.join(values)} |")
    text = "`python -m trainer RECIPE --help` describes the flags and prints their defaults."
    return f"## `trainyard:jobs[].flags`\n\nThe flags of each recipe. {text}\n\n" + "\n".join(rows) + "\n"


def _by_recipe(values: dict[str, str]) -> str:
    """Return the value that all recipes have, or each different value with its recipes."""
    recipes: dict[str, list[str]] = {}
    for recipe, value in values.items():
        recipes.setdefault(value, []).append(recipe)
    if len(recipes) == 1:
        return next(iter(recipes))
    return "; ".join(f"{', '.join(names)}: {value}" for value, names in recipes.items())


def _sections(schema: dict[str, Any], models: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield heading and model of each section, outer before inner, in the order of the fields."""

    def walk(key: str, suffix: str, field: dict[str, Any]) -> Iterator[tuple[str, str]]:
        names = [reference.rpartition("/")[2] for reference in _references(field)]
        for name in names:
            properties = models[name]["properties"]
            kind = properties["kind"]["const"] if len(names) > 1 else ""
            yield f"`{key}`" + (f", kind `{kind}`" if kind else suffix), name
            inner_suffix = f", in `{key}` of kind `{kind}`" if kind else suffix
            for inner, inner_field in properties.items():
                inner_key = f"{key}.{inner}{'[]' if 'items' in inner_field else ''}"
                yield from walk(inner_key, inner_suffix, inner_field)

    for key, field in schema["properties"].items():
        yield from walk(f"trainyard:{key}[]" if "items" in field else f"trainyard:{key}", "", field)


def _references(field: dict[str, Any]) -> list[str]:
    """Return the models that a field refers to."""
    if "$ref" in field:
        return [field["$ref"]]
    inner = [field["items"]] if "items" in field else [*field.get("oneOf", ()), *field.get("anyOf", ())]
    return [reference for each in inner for reference in _references(each)]


def _table(model: dict[str, Any]) -> str:
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
    bounds = ["not empty" if bound == "at least 1 characters" else bound for bound in bounds]
    return ", ".join([str(field["type"]), *bounds])


def _one_line(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def policy_page() -> str:
    """Return the text of docs/policy.md."""
    rows = ["| rule | level | applies to | why |", "|---|---|---|---|"]
    for rule in RULES:
        kinds = ", ".join(f"`{_short_type(kind)}`" for kind in rule.types)
        rows.append(f"| `{rule.name}` | {rule.level} | {kinds} | {rule.why} [more]({rule.link}) |")
    return POLICY_INTRODUCTION + "\n" + "\n".join(rows) + "\n"


def _short_type(kind: str) -> str:
    """Return a resource type, or a suffix of one, as in Pulumi's Python packages: `gcp.container.Cluster`."""
    *package, name = kind.rsplit(":", 1)
    return f"{package[0].partition('/')[0].replace(':', '.')}.{name}" if package and package[0] else name


def stack_page(stack: str) -> str:
    """Return the text of a stack's page."""
    file = PROJECT / f"Pulumi.{stack}.yaml"
    config = load_file(file)
    comment = takewhile(lambda line: line.startswith("#"), file.read_text(encoding="utf-8").splitlines())
    lines = [f"# Stack `{stack}`", "", *(line.removeprefix("# ") for line in comment), ""]
    lines.append("Generated from `Pulumi." + stack + ".yaml` by `python -m docs.references`.")
    parts = (*_price(config), *_language(config), *_quota(config), *_jobs(config))
    return "\n".join([*lines, *_commands(stack, config), *parts]) + "\n"


def _commands(stack: str, config: StackConfig) -> Iterator[str]:
    suffix = "" if stack == DEFAULT_STACK else f" STACK={stack}"
    cloud = config.cloud.provisioned
    yield from ("", "```")
    if cloud:
        yield f"make preview{suffix}        # changes, cost, quota and broken rules; needs no credentials"
        yield f"make rehearse{suffix}       # run it in a simulated cloud; needs no credentials"
    yield f"make up{suffix}"
    yield f"make down{suffix}"
    source = "according to the cloud's API" if cloud else "on this machine"
    yield f"make verify-empty{suffix}   # list leftovers, {source}"
    yield "```"


def _price(config: StackConfig) -> Iterator[str]:
    found = config.cloud.cost_estimate()
    if not found.lines:
        return
    yield from ("", "## Price", "", "| US dollars an hour | |", "|---|---|")
    for part, money in found.by_part().items():
        yield f"| {part} | {'more than ' if part in found.incomplete() else ''}{money.amount:,.2f} |"
    yield f"| sum (range of the estimate) | {found.total} |"
    if found.unpriced:
        yield f"\nNo price is known for {'; '.join(found.unpriced)}."


def _quota(config: StackConfig) -> Iterator[str]:
    found = config.cloud.quota()
    if found:
        yield from ("", "## Quota", "", "| where | quota | amount |", "|---|---|---|")
        yield from (f"| {each.location} | [{each.name}]({each.source}) | {each.amount} |" for each in found)


def _language(config: StackConfig) -> Iterator[str]:
    estimates = language_estimates(config)
    if estimates:
        yield from ("", "## Language models", "")
        yield from (line for each in estimates for line in each.lines())


def _jobs(config: StackConfig) -> Iterator[str]:
    yield from ("", "## Jobs")
    for job in config.jobs:
        command = shlex.join(host_command(job, process_layout(job)).argv)
        yield from ("", f"`{job.name}`: {job.kind}, {job.hosts} hosts; each runs", "", f"    {command}")


if __name__ == "__main__":
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
