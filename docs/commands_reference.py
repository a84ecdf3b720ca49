"""The page docs/commands.md: commands, options and exit statuses of `trainyard`."""

from __future__ import annotations

from collections.abc import Iterator

import click

from commands.cli import cli
from commands.interrupts import MEANINGS

INTRODUCTION = """\
# Commands

Commands, options and exit statuses of `trainyard`, generated from the code by `python -m docs.references`.

Three ways to get the program, from a checkout:

- `make install` links it into `~/.local/bin`.
- `uv tool install .` or `pipx install .` installs it in its own environment. It then runs the commands of that
  checkout, from any folder.
- `make TARGET` needs no installation. Each target of a stack is an alias, and prints the command that it stands for:
  `make logs JOB=digits` runs `trainyard logs digits`.

`trainyard completion bash` prints a script that completes commands, options and stacks in a shell.
"""
STATUS_INTRODUCTION = """\
## Exit statuses

| status | meaning |
|---|---|
"""


def render() -> str:
    """Return the text of docs/commands.md."""
    rows = "".join(f"| {status.value} | {meaning} |\n" for status, meaning in MEANINGS.items())
    sections = [_section(name, command) for name, command in cli.commands.items()]
    return "\n".join([INTRODUCTION, *sections, STATUS_INTRODUCTION + rows])


def _section(name: str, command: click.Command) -> str:
    """Return the section of one command."""
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
