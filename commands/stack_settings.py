"""Settings of a stack: write the first settings from a few answers, show them with defaults, and store a value."""

from __future__ import annotations

import getpass
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from commands.environment import PROJECT, program_folder, stack_environment
from commands.interrupts import CommandError, ExitStatus
from commands.stack import ensure_stack, settings_without_salt
from infra.cloud import FirstPlatform
from infra.make_command import DEFAULT_STACK, make_command
from settings.problem import Invalid
from settings.problems import ConfigError, error_text
from settings.text import wrap
from stack.config import CLOUDS, StackConfig, load_file, parse
from workloads.user_files import read_requirements

STACK_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
"""Pattern of a new stack's name. Names of cloud resources may contain the stack's name."""
RECIPE = "digits"
"""Recipe of a project without a script."""
DEFAULT_ACCELERATOR = "nvidia-tesla-t4"


PLATFORMS: Mapping[str, FirstPlatform] = {
    kind: cloud.first_platform for kind, cloud in CLOUDS.items() if cloud.first_platform
}
"""Kind -> platform of a first stack. The first kind is the default."""
HOST_RESOURCES = {"cpu": 6, "memory": "20Gi"}
"""Resources of a job's host. They fit on a node of each pool in PLATFORMS."""


class InvalidSetting(CommandError):
    """Invalid answer to `init`, or arguments of `config` that the command rejects."""

    status = ExitStatus.USAGE


NEGATIVE_NUMBER = re.compile(r"-[\d.]")
"""Beginning of a negative number."""
OPTIONS_WITH_VALUE = ("--config-file", "--type")
"""Options of `pulumi config set` whose next argument is their value."""


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Answers about the first stack."""

    platform: str
    program: str
    """Path of a script, or the name of a recipe."""
    hosts: int
    account: str = ""
    """Google Cloud project, or AWS region."""
    accelerator: str = ""
    requirements: str = ""
    """File with the script's packages, if the project has one."""


Ask = Callable[[str, str], str]
"""Function that asks a question with a default answer, and returns the answer."""


def ask_at_terminal(question: str, default: str) -> str:
    """Ask at the terminal. Without a terminal, return the default."""
    if not sys.stdin.isatty():
        return default
    sys.stdout.flush()
    return input(f"{question} [{default}]: ").strip() or default


def find_script(folder: Path) -> str:
    """Return the folder's probable training script: train.py, main.py or the only Python file; else a recipe."""
    names = sorted(path.name for path in folder.glob("*.py") if not path.name.startswith(("_", "test_")))
    known = [name for name in ("train.py", "main.py") if name in names]
    chosen = known or (names if len(names) == 1 else [])
    return f"./{chosen[0]}" if chosen else RECIPE


REQUIREMENTS = "requirements.txt"
"""Usual name of a project's requirements file."""


def collect(given: Mapping[str, str | int | None], folder: Path, ask: Ask) -> Answers:
    """Return the answers. Ask for those that are not in `given`. At a terminal, ask again after an invalid answer.

    Raises InvalidSetting.
    """

    def answer(name: str, question: str, default: str, problem_of: Callable[[str], str]) -> str:
        value = given.get(name)
        while True:
            text = str(value) if value is not None else ask(question, default)
            problem = problem_of(text)
            if not problem:
                return text
            error = f"--{name} {text}: {problem}" if text else f"--{name} is missing; {problem}"
            if value is not None or not sys.stdin.isatty():
                raise InvalidSetting(error)
            print(error, file=sys.stderr)

    platform = answer(
        "platform",
        f"Platform ({', '.join(PLATFORMS)})",
        next(iter(PLATFORMS)),
        lambda text: "" if text in PLATFORMS else f"must be one of {', '.join(PLATFORMS)}",
    )
    program = answer(
        "program", "Script to run, or a recipe (digits, imagenet, language)", find_script(folder), program_problem
    )
    hosts = answer("hosts", "Hosts of the job", "2", lambda text: hosts_problem(text, platform, program))
    first = PLATFORMS[platform]
    if not first.pools:
        return Answers(platform=platform, program=program, hosts=int(hosts))
    account = answer(
        "account",
        first.account_title,
        "",
        lambda text: "" if text else f"write the {first.account_key} of platform {platform}",
    )
    listed = sorted(first.pools)
    accelerator = answer(
        "accelerator",
        f"Accelerator ({', '.join(listed)})",
        DEFAULT_ACCELERATOR,
        lambda text: (
            ""
            if text in listed
            else f"must be one of {', '.join(listed)}; for another accelerator, write one of these and change the "
            "file afterwards (docs/config.md)"
        ),
    )
    return Answers(platform=platform, program=program, hosts=int(hosts), account=account, accelerator=accelerator)


def program_problem(program: str) -> str:
    """Return the problem of a script or recipe; empty for none."""
    script = "a script such as ./train.py"
    if not program:
        return f"write a recipe, or {script}"
    found = job_problems(Answers(platform="local", program=program, hosts=1))
    if "recipe" in found:
        return f"{found['recipe']}, or {script}"
    return found.get("script", "")


def hosts_problem(text: str, platform: str, program: str) -> str:
    """Return the problem of a number of hosts, such as hosts that do not fit on this machine; empty for none."""
    if not text.isdigit() or int(text) < 1:
        return "must be a number of at least 1"
    if PLATFORMS[platform].pools:
        return ""
    return job_problems(Answers(platform=platform, program=program, hosts=int(text))).get("hosts", "")


def job_problems(answers: Answers) -> dict[str, str]:
    """Return the problems of the job's settings: key of the job -> problem."""
    found = settings(answers, "")["config"]
    try:
        parse({key.partition(":")[2]: value for key, value in found.items()})
    except ConfigError as error:
        found_at = {each.path: each.message for each in error.problems}
        return {str(path[2]): text for path, text in found_at.items() if path[:2] == ("jobs", 0) and len(path) > 2}
    return {}


def settings(answers: Answers, name: str) -> dict[str, Any]:
    """Return the content of a settings file. `name` is the cluster's name in a cloud."""
    runs = {"script": answers.program} if answers.program.endswith(".py") else {"recipe": answers.program}
    packages = {"requirements": answers.requirements} if answers.requirements else {}
    job: dict[str, Any] = {"name": job_name(answers.program), **runs, **packages, "hosts": answers.hosts}
    first = PLATFORMS[answers.platform]
    platform: dict[str, Any] = {"kind": answers.platform, **first.settings}
    if first.pools:
        pool = {"name": "gpus", "nodes": answers.hosts, **first.pools[answers.accelerator]}
        platform |= {first.account_key: answers.account, "name": name, "pools": [pool]}
        job |= {"accelerator": answers.accelerator, "resources": HOST_RESOURCES}
    return {"config": {"trainyard:platform": platform, "trainyard:jobs": [job]}}


def job_name(program: str) -> str:
    """Return a job's name for a script or recipe."""
    name = re.sub(r"[^a-z0-9]+", "-", Path(program).stem.lower()).strip("-")
    return name if name and name[0].isalpha() else "train"


def init(folder: Path, stack: str, given: Mapping[str, str | int | None]) -> int:
    """Write `Pulumi.<stack>.yaml` into a folder and print the next commands. Raises InvalidSetting."""
    if not STACK_NAME.fullmatch(stack):
        raise InvalidSetting(
            f"--stack {stack}: must be 1 to 32 lower-case letters, digits and '-', and not begin "
            "or end with '-'; write another name"
        )
    file = folder / f"Pulumi.{stack}.yaml"
    if file.exists():
        raise InvalidSetting(f"{file}: already exists; name another stack with `--stack NAME`, or edit that file")
    answers = collect(given, folder, ask_at_terminal)
    if answers.program.endswith(".py") and (folder / REQUIREMENTS).is_file():
        try:
            read_requirements(REQUIREMENTS, folder)
            answers = replace(answers, requirements=REQUIREMENTS)
        except Invalid as error:
            reason = f"requirements = {REQUIREMENTS}: {error}; the stack is written without `requirements`"
            print(wrap(reason, sys.stderr), file=sys.stderr)
    found = settings(answers, stack)
    folder.mkdir(parents=True, exist_ok=True)
    text = f"# Stack `{stack}` of Trainyard. docs/config.md of Trainyard lists all keys.\n"
    file.write_text(text + yaml.safe_dump(found, sort_keys=False, default_flow_style=False), encoding="utf-8")
    if problem := settings_error(file):
        file.unlink()
        raise InvalidSetting(f"{file.name}: was not written, because the answers give an invalid stack:\n{problem}")
    print(f"wrote {file}")
    for line in next_lines(stack, found["config"]["trainyard:platform"]["kind"]):
        print(line)
    return 0


def read_settings(file: Path, *, checks_machine: bool = False) -> StackConfig:
    """Return the settings in a stack's file. Raises CommandError if the file is missing or invalid.

    With `checks_machine`, also check that this machine has the jobs' files and the capacity for the jobs.
    """
    try:
        return load_file(file, checks_machine=checks_machine)
    except ValueError as error:
        raise CommandError(error_text(file.name, error)) from error


def settings_error(file: Path) -> str:
    """Return the problems of a stack's file; empty for none."""
    try:
        load_file(file)
    except ValueError as error:
        return str(error)
    return ""


def next_lines(stack: str, platform: str) -> list[str]:
    """Return the commands to run next."""
    up = make_command("up", STACK=stack)
    if not PLATFORMS[platform].pools:
        # Import late: the steps are slow to import.
        from commands.doctor import set_up_steps

        first_run = "; the first run can take 20 min" if set_up_steps()[0] else ""
        return [f"{up} creates the cluster on this machine and runs the job{first_run}"]
    return [
        f"{make_command('preview', STACK=stack)} shows resources, price and quota; no account needed",
        f"{make_command('rehearse', STACK=stack)} creates and destroys the stack in a simulated cloud; "
        "no account needed",
        f"{up} shows the price and asks before it creates anything",
    ]


def show(*, as_json: bool) -> int:
    """Print the settings with all defaults. Return 1 if they are invalid."""
    stack = os.environ.get("STACK", DEFAULT_STACK)
    file = PROJECT / f"Pulumi.{stack}.yaml"
    try:
        found = load_file(file).model_dump(mode="json")
    except ConfigError as error:
        if as_json:
            print(json.dumps({"file": str(file), "problems": [each.message for each in error.problems]}, indent=2))
        else:
            print(wrap(error_text(file.name, error), sys.stderr), file=sys.stderr)
        return 1
    except ValueError as error:
        raise CommandError(str(error)) from error
    print(json.dumps(found, indent=2) if as_json else yaml.safe_dump(found, sort_keys=False).rstrip())
    return 0


def read_secret(words: Sequence[str]) -> str | None:
    """Read the value for `set --secret KEY` from the terminal or standard input.

    Return None if the arguments have the value, no key or no `--secret`.

    Raises InvalidSetting for an empty secret, which Pulumi would store.
    """
    if words[0] != "set" or "--secret" not in words:
        return None
    arguments = [
        word
        for before, word in pairwise(words)
        if before not in OPTIONS_WITH_VALUE and (not word.startswith("-") or NEGATIVE_NUMBER.match(word))
    ]
    if not arguments:
        return None  # Pulumi names the missing key.
    found = None
    if len(arguments) == 1:
        try:
            found = getpass.getpass("value: ") if sys.stdin.isatty() else sys.stdin.read()
        except EOFError:
            found = ""
    if not (arguments[1] if found is None else found).strip():
        raise InvalidSetting(
            f"the value of {arguments[0]} is empty; enter it when asked, or redirect a file with the value, as in "
            f"`trainyard config set --secret {arguments[0]} < FILE`"
        )
    return found


def pulumi_config(words: Sequence[str]) -> int:
    """Run `pulumi config` for the stack, at this terminal. Return its exit status.

    Raises InvalidSetting if `words` have no key, if a secret is empty, if `rm` finds no such key, or if `set` would
    make valid settings invalid. After `rm`, and if the settings were invalid before, only print the problems, because
    the user may change several keys in turn.
    """
    stack = os.environ.get("STACK", DEFAULT_STACK)
    first_negative = next((index for index, word in enumerate(words) if NEGATIVE_NUMBER.match(word)), len(words))
    if all(word.startswith("-") for word in words[1:]):
        example = "'trainyard:jobs[0].hosts'" + (" 4" if words[0] == "set" else "")
        raise InvalidSetting(f"the key is missing; write one, as in `trainyard config {words[0]} --path {example}`")
    secret = read_secret(words)
    ensure_stack(stack)
    file = PROJECT / f"Pulumi.{stack}.yaml"
    content = file.read_bytes() if file.is_file() else b""
    before = content if words[0] == "set" and content and not settings_error(file) else None
    # Pulumi would read a negative number as an option.
    command = ["pulumi", "config", *words[:first_negative], "--stack", stack, "--", *words[first_negative:]]
    sys.stdout.flush()
    with settings_without_salt():
        status = subprocess.run(
            command, cwd=program_folder(), env=stack_environment(), input=secret, text=True, check=False
        ).returncode
    if status == 0 and words[0] == "rm" and file.is_file() and content == file.read_bytes():
        raise InvalidSetting(f"{file.name} has no such key: {' '.join(words[1:])}; `trainyard config` lists all keys")
    if status == 0 and words[0] in ("set", "rm"):
        try:
            load_file(file)
        except ValueError as error:
            if before is not None:
                file.write_bytes(before)
                advice = f"to change several keys in turn, remove one first (`config rm`), or edit {file.name}"
                raise InvalidSetting(f"{error}\n{file.name} is unchanged; {advice}") from error
            if not isinstance(error, ConfigError):
                raise
            print(wrap(error_text(file.name, error), sys.stderr), file=sys.stderr)
    return status
