"""Shared parts of the command line: classes of commands, options, and the choice of the stack."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from commands import standard_streams
from commands.interrupts import CommandError, discard_output, print_notice, run_command
from infra.make_command import COMMAND_VARIABLE, DEFAULT_STACK, VERBOSE_VARIABLE, command_title, option_text
from infra.project import CHECKOUT, PROJECT_VARIABLE, STATE_NAME

MAKE_VARIABLES = ("JOB", "RANK", "PORT", "FAULT", "ORPHAN", "FRESH", "YES", "TO", VERBOSE_VARIABLE)
"""Variables that set options of make targets. Without make, these names may belong to other programs, so `trainyard`
ignores them."""
USER_SOURCES = (ParameterSource.COMMANDLINE, ParameterSource.ENVIRONMENT)
"""Sources of a value that the user set. Other values are defaults."""
STACK_NAME = re.compile(r"[A-Za-z0-9][-_A-Za-z0-9]*")
"""Pattern of a stack's name. With a dot or a slash, `Pulumi.NAME.yaml` could be the path of another file."""
Function = TypeVar("Function", bound=Callable[..., Any])


class _NonEmpty(click.Parameter):
    """Parameter that rejects an empty value on the command line, such as an unset variable of a user's script."""

    def consume_value(self, ctx: click.Context, opts: Mapping[str, Any]) -> tuple[Any, ParameterSource]:
        """Return the value and its source. Raises UsageError."""
        value, source = super().consume_value(ctx, opts)
        values = value if isinstance(value, list | tuple) else [value]
        if source is ParameterSource.COMMANDLINE and "" in values:
            name = self.opts[0] if isinstance(self, click.Option) else self.opts[0].upper()
            raise click.UsageError(f"{name} '': is empty; write a value, or leave it out", ctx)
        return value, source


class NonEmptyOption(_NonEmpty, click.Option):
    """Option that rejects an empty value."""


class JobArgument(_NonEmpty, click.Argument):
    """Argument that rejects an empty value."""


option = partial(click.option, cls=NonEmptyOption)
"""Decorator that adds an option with a non-empty value."""


class StackCommand(click.Command):
    """Command whose callback returns its exit status. Reports errors and Ctrl-C in one line."""

    root: Literal["never", "this_machine", "always"] = "never"
    """Stacks for which only root may run the command: none, stacks of platform `local`, or all."""
    takes_stack = True
    """True if the command has the options `--stack` and `--project`."""

    def __init__(self, *words: Any, **settings: Any) -> None:
        super().__init__(*words, **settings)
        self.params[:0] = [STACK_OPTION, PROJECT_OPTION] if self.takes_stack else []

    def invoke(self, ctx: click.Context) -> Any:
        """Run the callback. End with its exit status."""
        name = ctx.info_name or ""
        if not os.environ.get(COMMAND_VARIABLE):
            click.echo(click.style(format_command(ctx), dim=True), err=True)
        if self.takes_stack:
            use_stack(ctx.params.pop("project"), ctx.params.pop("stack"))
        if "verbose" in ctx.params:
            os.environ[VERBOSE_VARIABLE] = "1" if ctx.params.pop("verbose") else ""
        if "job" in ctx.params:
            os.environ["JOB"] = ""  # stack.config would read JOB as the names of examples.
        words = [name, *([os.environ.get("STACK", DEFAULT_STACK)] if self.root == "this_machine" else [])]
        if self.root != "never" and not may_run(*words):
            ctx.exit(1)
        ctx.exit(run_command(command_title(name), lambda: click.Command.invoke(self, ctx)))


class ClusterCommand(StackCommand):
    """Command that changes or reads the stack's cluster, which may be on this machine."""

    root = "this_machine"


class RootCommand(StackCommand):
    """Command that creates Linux namespaces on this machine."""

    root = "always"


class SetUpCommand(RootCommand):
    """Command about this machine instead of about a stack."""

    takes_stack = False


class OrderedGroup(click.Group):
    """Group that lists its commands in the order of the source."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        del ctx
        return list(self.commands)


def use_stack(project: Path | None, stack: str | None) -> None:
    """Set the project and the stack of this process. Raises UsageError for a wrong name, or if there is no project."""
    if stack and not STACK_NAME.fullmatch(stack):
        raise click.UsageError(
            f"{option_text('STACK', stack)}: must have only letters, digits, '-' and '_', and begin with a "
            "letter or digit; write the NAME of a Pulumi.NAME.yaml, and the folder with `--project FOLDER`"
        )
    folder = find_project(project)
    if folder is None:
        raise click.UsageError(
            f"{Path.cwd()} and the folders above it have no Pulumi.NAME.yaml; `trainyard init` writes one, and "
            "`--project FOLDER` names another folder"
        )
    if folder == CHECKOUT:
        os.environ.pop(PROJECT_VARIABLE, None)
    else:
        os.environ[PROJECT_VARIABLE] = str(folder)
    os.environ["STACK"] = stack or default_stack(folder)


def find_project(given: Path | None) -> Path | None:
    """Return the project's folder; None if there is none.

    The first of these counts: `given`; the checkout, for a make target; the folder in PROJECT_VARIABLE; the nearest
    folder with stacks, from the working directory upward.
    """
    if given is not None:
        return given.resolve()
    if not os.environ.get(COMMAND_VARIABLE):
        return CHECKOUT
    if found := os.environ.get(PROJECT_VARIABLE):
        return Path(found).resolve()
    here = Path.cwd()
    return next((each for each in (here, *here.parents) if stacks_of(each) or stacks_in_state(each)), None)


def stacks_of(folder: Path) -> list[str]:
    """Return the stacks with a settings file in a folder."""
    return sorted(file.name.split(".")[1] for file in folder.glob("Pulumi.*.yaml"))


def stacks_in_state(folder: Path) -> list[str]:
    """Return the stacks with a state in a project's folder backend. They may no longer have a settings file."""
    return sorted(file.stem for file in (folder / STATE_NAME / "pulumi" / ".pulumi" / "stacks").glob("*/*.json"))


def default_stack(folder: Path) -> str:
    """Return the only stack with settings; without settings, the only stack with a state; else `local`."""
    found = stacks_of(folder) or stacks_in_state(folder)
    return found[0] if len(found) == 1 else DEFAULT_STACK


def format_command(ctx: click.Context) -> str:
    """Format the equivalent `trainyard` command, with the values that the user set."""
    words = [".venv/bin/trainyard", ctx.info_name or ""]
    arguments: list[str] = []
    for parameter in ctx.command.params:
        value = ctx.params.get(parameter.name or "")
        if ctx.get_parameter_source(parameter.name or "") not in USER_SOURCES or value in (None, (), "", False):
            continue
        values = [str(each) for each in value] if isinstance(value, tuple) else [str(value)]
        if isinstance(parameter, click.Argument):
            arguments += values
        elif value is True:
            words.append(parameter.opts[0])
        else:
            words += [word for each in values for word in (parameter.opts[0], each)]
    return shlex.join([*words, *arguments])


def may_run(*words: str) -> bool:
    """Return True if this user may run a command, else print the reason. `words` are its name and maybe a stack."""
    return subprocess.run([CHECKOUT / "setup" / "root", *words], check=False).returncode == 0


def complete_stacks(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the stacks with a settings file, for completion in a shell."""
    folder = find_project(ctx.params.get("project"))
    return [CompletionItem(name) for name in stacks_of(folder) if name.startswith(incomplete)] if folder else []


STACK_OPTION = NonEmptyOption(
    ["--stack", "-s"],
    envvar="STACK",
    metavar="NAME",
    help="The stack: NAME of Pulumi.NAME.yaml. Default: the only one in the folder, else `local`.",
    shell_complete=complete_stacks,
)
PROJECT_OPTION = NonEmptyOption(
    ["--project", "-C"],
    metavar="FOLDER",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder with the stacks. Default: the working directory or the nearest folder above it.",
)


def output_option(help: str) -> Callable[[Function], Function]:
    """Return a decorator that adds `--output` for a file."""
    return option("--output", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help=help)


def port_option(default: int, min_port: int, help: str) -> Callable[[Function], Function]:
    """Return a decorator that adds `--port`. Ports below `min_port` are errors."""
    ports = click.IntRange(min_port, 65535)
    return option("--port", envvar="PORT", type=ports, default=default, show_default=True, help=help)


json_option = option("--json", "as_json", is_flag=True, help="Print JSON.")
yes_option = option("--yes", "-y", is_flag=True, envvar="YES", help="Answer every question with yes.")
verbose_option = option(
    "--verbose",
    "-v",
    is_flag=True,
    envvar=VERBOSE_VARIABLE,
    help="Show all output: Pulumi's, and the lines of every rank with all fields.",
)
"""Decorator that adds `--verbose`. The commands read its value from the environment."""
job_argument = click.argument("job", cls=JobArgument, required=False, envvar="JOB", metavar="[JOB]")


def option_hint(group: click.Group, option: str) -> str:
    """Return advice about an option that precedes the command; empty if no command has the option."""
    names = [name for name, each in group.commands.items() if any(option in found.opts for found in each.params)]
    example = "status" if "status" in names else next(iter(names), "")
    return f"{option}: write this option after the command, as in `trainyard {example} {option} ...`" if names else ""


def run_group(group: click.Group, arguments: list[str]) -> int:
    """Run the command that the arguments name. Return its exit status."""
    if not os.environ.get("HOME"):
        # Child processes need HOME, which services and containers may not set.
        os.environ["HOME"] = pwd.getpwuid(os.getuid()).pw_dir
    if os.environ.get(COMMAND_VARIABLE):
        for name in MAKE_VARIABLES:
            os.environ.pop(name, None)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    try:
        standard_streams.prepare()
        status = group.main(arguments, prog_name="trainyard", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        if isinstance(error, click.NoSuchOption) and error.ctx and error.ctx.command is group:
            error = click.UsageError(option_hint(group, error.option_name) or error.format_message(), error.ctx)
        error.show()
        return error.exit_code
    except click.Abort:
        print("stopped", file=sys.stderr)
        return 130
    except CommandError as error:
        print_notice(f"trainyard: {error}")
        return error.status
    except BrokenPipeError:
        discard_output()
        return 1
    return status if isinstance(status, int) else 0
