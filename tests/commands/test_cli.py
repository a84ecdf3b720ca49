"""Command line `trainyard`: arguments, errors, make variables, commands in messages, completion and start."""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from commands import cli, follow, jobs, profile, up
from commands.interrupts import MEANINGS, CommandError, ExitStatus
from commands.monitor.cluster import Unreachable
from infra.make_command import COMMAND_VARIABLE, make_command
from tests.unit.test_makefile import make

PROJECT = Path(__file__).resolve().parents[2]
COMMANDS = cli.cli.commands
Calls = list[tuple[Any, ...]]


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Unset the variables that commands read. Return the patch, which afterwards also undoes a command's changes."""
    # Without `setenv`, the patch would not restore a variable that was not set before.
    for name in ("STACK", "JOB", "RANK", "PORT", "ORPHAN", COMMAND_VARIABLE):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setattr("commands.command_line.may_run", lambda *_words: True)
    return monkeypatch


def recording_command(calls: Calls, status: int = 0) -> Callable[..., int]:
    """Return a command that adds the stack and its arguments to `calls`, and ends with a status."""

    def function(*words: Any, **options: Any) -> int:
        calls.append((os.environ["STACK"], *words, *(name for name, value in options.items() if value is True)))
        return status

    return function


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_has_an_example_that_can_be_parsed(name: str) -> None:
    examples = (COMMANDS[name].help or "").partition("\b\n")[2].splitlines()[1:]
    lines = [line.strip() for line in examples if line.strip()]
    assert lines
    for line in lines:
        words = shlex.split(re.split(r" [|>]| {2}", line)[0])
        assert words[:2] == ["trainyard", name]
        COMMANDS[name].make_context(name, words[2:], resilient_parsing=False)


def test_help_at_80_columns_truncates_no_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) < 80
    commands = text.partition("Commands:\n")[2].splitlines()
    assert [line for line in commands if line.endswith("...")] == []
    assert len(commands) == len(COMMANDS)


def test_help_option_prints_commands_in_the_order_of_the_source(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.partition("Commands:\n")[2].splitlines() if line]
    assert [name for name in listed if name in COMMANDS] == list(COMMANDS)


def test_arguments_reach_the_command_with_its_stack(environment: pytest.MonkeyPatch) -> None:
    calls: Calls = []
    environment.setenv(COMMAND_VARIABLE, "trainyard")
    environment.setattr(follow, "main", recording_command(calls))
    assert cli.main(["logs", "digits", "--rank", "1", "--no-follow", "-s", "dev"]) == 0
    assert calls == [("dev", "digits", 1, "no_follow")]


def test_options_of_up_reach_the_command(environment: pytest.MonkeyPatch) -> None:
    calls: Calls = []
    environment.setattr(up, "main", recording_command(calls))
    assert cli.main(["up", "--yes", "--no-follow", "-s", "dev"]) == 0
    assert calls == [("dev", "is_confirmed", "no_follow")]


def test_status_of_the_command_is_the_exit_status(environment: pytest.MonkeyPatch) -> None:
    environment.setattr(up, "main", recording_command([], status=1))
    assert cli.main(["up"]) == 1


def test_command_error_prints_one_line_with_the_name_of_the_program(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_options: Any) -> int:
        raise CommandError("the cluster is not running")

    environment.setenv(COMMAND_VARIABLE, "trainyard")
    environment.setattr(up, "main", fail)
    assert cli.main(["up"]) == 1
    assert capsys.readouterr().err == "trainyard up: the cluster is not running\n"


@pytest.mark.parametrize("words", [["stop"], ["resume"], ["rerun"], ["exec"], ["logs"]])
def test_command_on_a_stopped_cluster_says_how_to_start_it(
    words: list[str], environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_values: Any, **_options: Any) -> int:
        raise Unreachable("the API server does not answer: refused")

    environment.setenv(COMMAND_VARIABLE, "trainyard")
    for name in ("stop", "resume", "rerun", "open_shell"):
        environment.setattr(jobs, name, fail)
    environment.setattr(follow, "main", fail)
    assert cli.main([*words, "-s", "dev"]) == 1
    error = capsys.readouterr().err
    assert "the API server does not answer: refused; `trainyard up --stack dev" in error
    assert "starts it again" in error


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["upp"], "No such command 'upp'"),
        (["up", "--stak", "dev"], "No such option"),
        (["logs", "--rank", "first"], "'first' is not a valid integer"),
        (["completion", "tcsh"], "'tcsh' is not one of"),
        (["-C", "x", "status"], "-C: write this option after the command, as in `trainyard status -C ...`"),
        (["--rank", "1", "logs"], "--rank: write this option after the command, as in `trainyard logs --rank ...`"),
        (["--stak", "dev", "up"], "No such option '--stak'.\n"),
        (["up", "-s", "../local"], "Error: --stack ../local: must have only letters, digits, '-' and '_'"),
        (["up", "--stack", ""], "Error: --stack '': is empty; write a value, or leave it out"),
        (["up", "--job="], "Error: --job '': is empty"),
        (["status", "--project", ""], "Error: --project '': is empty"),
        (["fetch", "--to", ""], "Error: --to '': is empty"),
        (["rehearse", "--quota", ""], "Error: --quota '': is empty"),
        (["init", "--stack", ""], "Error: --stack '': is empty"),
        (["stop", ""], "Error: JOB '': is empty"),
        (["status", "-s", "gke.dev"], "Error: --stack gke.dev: must have only letters, digits, '-' and '_'"),
    ],
)
def test_wrong_arguments_are_rejected_with_status_2(
    words: list[str], message: str, environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environment.setenv(COMMAND_VARIABLE, "trainyard")
    assert cli.main(words) == ExitStatus.USAGE
    assert message in capsys.readouterr().err


def test_make_variables_are_options_and_the_command_is_printed(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: Calls = []
    environment.setattr(profile, "serve_tensorboard", recording_command(calls))
    environment.setattr(cli, "run_set_up", lambda *_words: 0)
    for name, value in {"STACK": "dev", "JOB": "digits", "PORT": "7000"}.items():
        environment.setenv(name, value)
    assert cli.main(["tensorboard"]) == 0
    assert capsys.readouterr().err == ".venv/bin/trainyard tensorboard --stack dev --port 7000 digits\n"
    assert [call[0] for call in calls] == ["dev"]
    assert (os.environ["JOB"], os.environ["PORT"]) == ("digits", "7000")


def test_exec_passes_options_after_the_command_to_that_command(environment: pytest.MonkeyPatch) -> None:
    calls: Calls = []
    environment.setattr(jobs, "open_shell", recording_command(calls))
    environment.setenv(COMMAND_VARIABLE, "trainyard")
    for words in (["ls", "-la", "--help"], ["--", "ls", "-la", "--help"]):
        assert cli.main(["exec", "--rank", "1", *words]) == 0
    assert calls == [("local", ("ls", "-la", "--help"))] * 2
    assert os.environ["RANK"] == "1"


def test_trainyard_ignores_variables_of_other_programs(
    environment: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: Calls = []
    environment.setenv(COMMAND_VARIABLE, "trainyard")
    environment.setenv("RANK", "3")
    environment.setenv("JOB", "digits")
    environment.setattr(follow, "main", recording_command(calls))
    assert cli.main(["logs"]) == 0
    assert calls == [("local", "", None)]
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("target", "variables", "expected"),
    [
        ("up", {}, "`trainyard up`"),
        ("logs", {"JOB": "digits", "STACK": "dev"}, "`trainyard logs digits --stack dev`"),
        ("up", {"JOB": "elastic"}, "`trainyard up --job elastic`"),
        ("exec", {"JOB": "a", "RANK": "0"}, "`trainyard exec --job a --rank 0`"),
        ("down", {"STACK": "", "ORPHAN": "local-1"}, "`trainyard down --orphan local-1`"),
    ],
)
def test_make_command_for_trainyard_has_options(
    target: str, variables: dict[str, str], expected: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv(COMMAND_VARIABLE, "trainyard")
    assert make_command(target, **variables) == expected
    words = shlex.split(expected.strip("`"))
    COMMANDS[target].make_context(target, words[2:])


def commands_in_messages() -> Iterator[tuple[str, list[str]]]:
    """Yield the target and the variable names of each `make_command` call in the source with a constant target."""
    for folder in ("commands", "infra", "stack", "workloads"):
        for file in (PROJECT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "make_command":
                    (target,) = node.args
                    if isinstance(target, ast.Constant):
                        names = [each.arg for each in node.keywords if ast.unparse(each.value) != "''"]
                        yield str(target.value), [str(name) for name in names]


def test_commands_in_messages_are_commands_of_trainyard_and_targets_of_make(environment: pytest.MonkeyPatch) -> None:
    environment.setenv(COMMAND_VARIABLE, "trainyard")
    environment.setenv("STACK", "")
    targets = {line.split()[1] for line in make("help", PROJECT).splitlines()}
    found = list(commands_in_messages())
    assert len(found) > 20
    for target, names in found:
        assert target in targets
        words = shlex.split(make_command(target, **dict.fromkeys(names, "1")).strip("`"))
        COMMANDS[target].make_context(target, words[2:])


def test_makefile_has_a_target_for_each_command_except_completion() -> None:
    lines = (PROJECT / "Makefile").read_text(encoding="utf-8").splitlines()
    called = {line.removeprefix("\t$(call run,").split()[0].rstrip(")") for line in lines if "$(call run," in line}
    assert called == set(COMMANDS) - {"completion"}


def test_empty_make_variables_are_unset(environment: pytest.MonkeyPatch) -> None:
    calls: Calls = []
    environment.setattr(follow, "main", recording_command(calls))
    environment.setenv("STACK", "")
    environment.setenv("JOB", "")
    assert cli.main(["logs"]) == 0
    assert calls == [("local", "", None)]


@pytest.mark.parametrize(("words", "same"), [(["help"], ["--help"]), (["help", "stop"], ["stop", "--help"])])
def test_help_command_prints_the_help(words: list[str], same: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(same) == 0
    expected = capsys.readouterr().out
    assert cli.main(words) == 0
    assert capsys.readouterr().out == expected


def test_version_has_the_commit(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--version"]) == 0
    assert re.fullmatch(r"trainyard \d+\.\d+\.\d+, commit [0-9a-f]{12}(-dirty)?\n", capsys.readouterr().out)


def test_every_exit_status_has_a_meaning() -> None:
    assert set(MEANINGS) == set(ExitStatus)


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_completion_prints_the_script_of_the_shell(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["completion", name]) == 0
    assert "_TRAINYARD_COMPLETE" in capsys.readouterr().out


def test_stack_option_completes_to_the_stacks_with_a_settings_file() -> None:
    (option,) = [each for each in COMMANDS["up"].params if each.name == "stack"]
    found = option.shell_complete(click.Context(COMMANDS["up"]), "gke")
    assert [item.value for item in found] == ["gke-h200", "gke-tpu", "gke-v100"]


def test_trainyard_runs_the_checkout_that_contains_the_working_directory(tmp_path: Path) -> None:
    checkout = tmp_path / "checkout"
    for name in ("commands", "setup", ".venv/bin", "inner"):
        (checkout / name).mkdir(parents=True)
    (checkout / "requirements.txt").touch()
    (checkout / "commands" / "cli.py").write_text(
        "import os\ndef main(words): print(os.environ['TRAINYARD_COMMAND'], words); return 4\n", encoding="utf-8"
    )
    (checkout / "setup" / "python").write_text("#!/bin/sh\n", encoding="utf-8")
    (checkout / "setup" / "python").chmod(0o755)
    (checkout / ".venv" / "bin" / "python").symlink_to(sys.executable)
    code = f"import sys; sys.path.insert(0, {str(PROJECT)!r}); import trainyard; trainyard.main()"
    words = [sys.executable, "-P", "-c", code, "logs", "-s", "dev"]
    done = subprocess.run(words, cwd=checkout / "inner", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (4, "trainyard ['logs', '-s', 'dev']\n")
