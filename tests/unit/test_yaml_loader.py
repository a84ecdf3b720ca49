"""Reading the YAML of a stack: a value that YAML changes is rejected, in a line that shows no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from settings.problem import dotted
from settings.problems import ConfigError
from stack.config import StackConfig, load_file

JOB = "name: a, recipe: digits, resources: {cpu: 1m, memory: 1Gi}, shared_memory: 64Mi"


def stack(folder: Path, keys: str, platform: str = "{kind: local}") -> StackConfig:
    """Return the stack with a job that has these further keys."""
    path = folder / "Pulumi.test.yaml"
    text = f"config:\n  trainyard:platform: {platform}\n  trainyard:jobs:\n  - {{{JOB}, {keys}}}\n"
    path.write_text(text, encoding="utf-8")
    return load_file(path)


def error_line(folder: Path, keys: str, platform: str = "{kind: local}") -> str:
    """Return the error line of a stack with a job that has these further keys."""
    with pytest.raises(ValueError, match=r"trainyard:|Pulumi\.test\.yaml: ") as caught:
        stack(folder, keys, platform)
    (line,) = str(caught.value).splitlines()
    return line


def problem(folder: Path, keys: str, platform: str = "{kind: local}") -> tuple[str, str]:
    """Return code and path of the only problem of a stack with a job that has these further keys."""
    with pytest.raises(ConfigError) as caught:
        stack(folder, keys, platform)
    (found,) = caught.value.problems
    return found.code, dotted(found.path)


@pytest.mark.parametrize(
    "text",
    [
        *("3.10", "0022", "0x1F", "1_000", "12:30:45", "1.0e+5", ".nan", "2026-01-02"),
        # PyYAML reads these as text, and Pulumi reads them as numbers and a date.
        *("8.0", "08", "1e3", "1e-5", "0o22", "2026-1-2"),
    ],
)
def test_yaml_text_read_as_number_is_rejected_unless_quoted(tmp_path: Path, text: str) -> None:
    assert problem(tmp_path, f"environment: {{A: {text}}}") == ("yaml.value.changed", "jobs[0].environment.A")
    assert stack(tmp_path, f"environment: {{A: '{text}'}}").jobs[0].environment == {"A": text}


def test_yaml_changed_value_has_message_with_quotes(tmp_path: Path) -> None:
    assert error_line(tmp_path, "args: [--mode, 0755]") == (
        "trainyard:jobs[0].args[1]: 0755 is read as 493; put it in quotes: `- '0755'`"
    )


@pytest.mark.parametrize("text", ["3", "-3", "3.5", "0.0001", "a", "'010'", "!!str 010", "0", "1e", "8.0.1"])
def test_yaml_text_read_as_written_is_accepted(tmp_path: Path, text: str) -> None:
    found = stack(tmp_path, f"environment: {{A: {text}}}").jobs[0].environment["A"]
    assert found == text.removeprefix("!!str ").strip("'")


@pytest.mark.parametrize(
    ("keys", "code", "path"),
    [
        ("deadline_seconds: 1:00:00", "changed", "deadline_seconds"),
        ("flags: {epochs: 010}", "changed", "flags.epochs"),
        ("flags: {job: 1.10}", "changed", "flags.job"),
        ("environment: {A: !!binary aGVsbG8=}", "binary", "environment.A"),
        ("environment: {A: 2026-13-45}", "unreadable", "environment.A"),
        ("suspend: yes", "bool", "suspend"),
        ("flags: {wandb: Off}", "bool", "flags.wandb"),
    ],
)
def test_yaml_value_read_differently_is_rejected(tmp_path: Path, keys: str, code: str, path: str) -> None:
    assert problem(tmp_path, keys) == (f"yaml.value.{code}", f"jobs[0].{path}")


@pytest.mark.parametrize("keys", ["deadline_seconds: 3_600", "flags: {lr: 0.10}", "flags: {lr: 1e-3}", "suspend: True"])
def test_yaml_number_or_boolean_with_unchanged_meaning_is_accepted(tmp_path: Path, keys: str) -> None:
    assert stack(tmp_path, keys).jobs


def test_yaml_number_in_place_of_text_suggests_quotes(tmp_path: Path) -> None:
    account_error = error_line(tmp_path, "hosts: 1", "{kind: eks, account: 012345670123}")
    assert "put it in quotes: `account: '012345670123'`" in account_error
    version_error = error_line(tmp_path, "hosts: 1", "{kind: eks, kubernetes_version: 1.30}")
    assert "write `kubernetes_version: '1.30'`" in version_error


@pytest.mark.parametrize(
    "keys",
    [
        "environment: {DB_PASSWORD: @hunter2}",
        "environment: {DB_PASSWORD: *hunter2}",
        "environment: {DB_PASSWORD: hunter2",
        "environment: {DB_PASSWORD: 'hunter2}",
        "environment: {DB_PASSWORD: &hunter2 a, B: &hunter2 b}",
        'environment: {DB_PASSWORD: "hunter2 \\q"}',
    ],
)
def test_yaml_invalid_syntax_shows_place_and_no_secret(tmp_path: Path, keys: str) -> None:
    line = error_line(tmp_path, keys)
    assert "hunter2" not in line
    assert "not YAML: line " in line


def test_yaml_secret_number_is_not_shown(tmp_path: Path) -> None:
    line = error_line(tmp_path, "environment: {DB_PASSWORD: 01234567}")
    assert "1234567" not in line
    assert str(0o1234567) not in line


def test_yaml_aliases_are_limited(tmp_path: Path) -> None:
    assert stack(tmp_path, "environment: &e {A: &a x, B: *a}").jobs[0].environment == {"A": "x", "B": "x"}
    rows = ["v0: &v0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"v{level}: &v{level} [{', '.join([f'*v{level - 1}'] * 9)}]" for level in range(1, 30)]
    assert "has more than 50000 values" in error_line(tmp_path, f"environment: {{{', '.join(rows)}}}")
