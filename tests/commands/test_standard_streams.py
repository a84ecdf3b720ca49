"""Standard streams of the commands: full or closed outputs, text that cannot be encoded, a deleted working folder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainyard.launcher import launch

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = "import sys; from commands.cli import main; sys.exit(main(sys.argv[1:]))"
FULL_MESSAGE = "the output cannot be written: No space left on device\n"
CLOSED_MESSAGE = "the output cannot be written: it is closed\n"
COMMANDS = {"trainyard": "--help", "trainyard config": "config --stack dev", "trainyard doctor": "doctor --json"}
"""Name of a command -> its arguments."""


def run(words: str, redirection: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command of `trainyard` in a shell, with a redirection."""
    script = f"exec {sys.executable} -c '{PROGRAM}' {words} {redirection}"
    variables = {**os.environ, "TRAINYARD_COMMAND": "trainyard", "PYTHONUNBUFFERED": "", **environment}
    return subprocess.run(["sh", "-c", script], cwd=ROOT, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("name", COMMANDS)
def test_full_output_prints_one_sentence(name: str, unbuffered: str) -> None:
    done = run(COMMANDS[name], "> /dev/full", PYTHONUNBUFFERED=unbuffered)
    # `run_command` does not run `doctor`, so the error does not name it.
    assert (done.returncode, done.stderr) == (1, f"{name.removesuffix(' doctor')}: {FULL_MESSAGE}")


@pytest.mark.parametrize("words", COMMANDS.values())
def test_closed_output_prints_one_sentence(words: str) -> None:
    done = run(words, ">&-")
    assert (done.returncode, done.stderr) == (1, f"trainyard: {CLOSED_MESSAGE}")


def test_closed_pipe_prints_nothing() -> None:
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-c", PROGRAM, "doctor", "--json"]
    done = subprocess.run(words, cwd=ROOT, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (1, "")


def test_command_with_closed_input_and_standard_error_prints_its_output() -> None:
    done = run("config --stack dev", "<&- 2>&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("platform:")


@pytest.mark.parametrize(
    "environment", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}]
)
def test_text_that_the_output_cannot_encode_has_replacements(environment: dict[str, str]) -> None:
    program = r"from commands.standard_streams import prepare; prepare(); print('\u00e9poque'); print('end')"
    words = [sys.executable, "-c", program]
    inherited = {key: value for key, value in os.environ.items() if key not in ("PYTHONIOENCODING", "PYTHONUTF8")}
    done = subprocess.run(words, cwd=ROOT, env={**inherited, **environment}, capture_output=True, check=False)
    assert (done.stdout, done.stderr) == (b"?poque\nend\n", b"")


def test_deleted_working_folder_is_a_usage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "deleted"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    with pytest.raises(SystemExit) as caught:
        launch()
    assert caught.value.code == 2
    assert capsys.readouterr().err == "trainyard: the working directory no longer exists; change to another folder\n"
