"""Formatting of commands in messages, as the user types them: `make down STACK=dev`, `trainyard down --stack dev`."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

from infra.project import PROJECT_VARIABLE

DEFAULT_STACK = "local"
"""Default stack of `make` and `trainyard`."""
COMMAND_VARIABLE = "TRAINYARD_COMMAND"
"""Environment variable with the program that the user typed, such as `trainyard`. Empty if make runs the command."""
VERBOSE_VARIABLE = "VERBOSE"
"""Environment and make variable that `--verbose` sets."""
FLAGS = ("FRESH", "YES", VERBOSE_VARIABLE)
"""Make variables that are flags of `trainyard`."""
OPTION_TARGETS = ("up", "exec")
"""Commands of `trainyard` with an option `--job`. The others have the job as an argument."""


def make_command(target: str, **variables: str) -> str:
    """Return the command for a target, in backquotes, such as `make down STACK=other`.

    The stack defaults to $STACK, which every command sets. `variables` are make variables. The command omits empty
    variables and the default stack.
    """
    values = {"STACK": os.environ.get("STACK", ""), **variables}
    if values["STACK"] == DEFAULT_STACK:
        values["STACK"] = ""
    given = {name: value for name, value in values.items() if value}
    program = os.environ.get(COMMAND_VARIABLE)
    if program and (project := os.environ.get(PROJECT_VARIABLE)) and not Path.cwd().is_relative_to(project):
        given["PROJECT"] = project
    words = _options(target, given) if program else [f"{name}={value}" for name, value in given.items()]
    return f"`{' '.join([program or 'make', target, *words])}`"


def sudo_command(target: str) -> str:
    """Return the command for a target as root. It has the path of `trainyard`, because sudo ignores ~/.local/bin."""
    program = os.environ.get(COMMAND_VARIABLE, "")
    return f"`sudo {make_command(target).strip('`').replace(program, shutil.which(program) or program, 1)}`"


def secret_command(key: str) -> str:
    """Return the command that stores an encrypted setting of $STACK. With make, it must run in `make shell`."""
    if os.environ.get(COMMAND_VARIABLE):
        return f"{make_command('config').rstrip('`')} set --secret {key}`"
    return f"`pulumi config set --secret {key}` in {make_command('shell')}"


def option_text(name: str, value: str) -> str:
    """Return an option as the user types it, such as `RANK=1` or `--rank 1`. `name` is the make variable."""
    return " ".join(_options("up", {name: value})) if os.environ.get(COMMAND_VARIABLE) else f"{name}={value}"


def command_title(target: str) -> str:
    """Return the name of a command in messages, such as `make up` or `trainyard up`."""
    return f"{os.environ.get(COMMAND_VARIABLE) or 'make'} {target}"


def _options(target: str, given: dict[str, str]) -> list[str]:
    """Return the arguments of `trainyard` for make variables."""
    words: list[str] = []
    for name, value in given.items():
        if name == "JOB" and target not in OPTION_TARGETS:
            words.insert(0, shlex.quote(value))
        elif name in FLAGS:
            words.append(f"--{name.lower()}")
        else:
            words += [f"--{name.lower()}", shlex.quote(value)]
    return words
