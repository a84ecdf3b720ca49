"""Settings of a stack: show them with their defaults, check them, and store a value or a secret."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

import yaml

from commands.environment import PROJECT, program_folder, stack_environment
from commands.interrupts import CommandError
from commands.stack import ensure_stack, settings_without_salt
from infra.make_command import DEFAULT_STACK
from settings.problems import ConfigError
from stack.config import load_file


def show(*, as_json: bool) -> int:
    """Print the settings with all defaults. Return 1 if they are invalid."""
    stack = os.environ.get("STACK", DEFAULT_STACK)
    file = PROJECT / f"Pulumi.{stack}.yaml"
    try:
        found = load_file(file).model_dump(mode="json")
    except ConfigError as error:
        problems = [each.message for each in error.problems]
        print(json.dumps({"file": str(file), "problems": problems}, indent=2) if as_json else f"{file.name}:\n{error}")
        return 1
    except ValueError as error:
        raise CommandError(str(error)) from error
    print(json.dumps(found, indent=2) if as_json else yaml.safe_dump(found, sort_keys=False).rstrip())
    return 0


def pulumi_config(words: Sequence[str]) -> int:
    """Run `pulumi config` for the stack, at this terminal. Return its exit status."""
    stack = os.environ.get("STACK", DEFAULT_STACK)
    ensure_stack(stack)
    command = ["pulumi", "config", *words, "--stack", stack]
    sys.stdout.flush()
    with settings_without_salt():
        return subprocess.run(command, cwd=program_folder(), env=stack_environment(), check=False).returncode
