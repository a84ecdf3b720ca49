"""A stack's file is read as written, or rejected in a line that shows no secret."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from stack.config import StackConfig, load_file

JOB = "name: a, recipe: digits, resources: {cpu: 1m, memory: 1Gi}, shared_memory: 64Mi"


def stack(folder: Path, keys: str, platform: str = "{kind: local}") -> StackConfig:
    """Return the stack of a job with some more keys."""
    path = folder / "Pulumi.test.yaml"
    text = f"config:\n  trainyard:platform: {platform}\n  trainyard:jobs:\n  - {{{JOB}, {keys}}}\n"
    path.write_text(text, encoding="utf-8")
    return load_file(path)


def refusal(folder: Path, keys: str, platform: str = "{kind: local}") -> str:
    """Return the error line of the stack."""
    with pytest.raises(ValueError, match=r"trainyard:|Pulumi\.test\.yaml: ") as refused:
        stack(folder, keys, platform)
    (line,) = str(refused.value).splitlines()
    return line


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("3.10", "3.1"),
        ("0022", "18"),
        ("0x1F", "31"),
        ("1_000", "1000"),
        ("12:30:45", "45045"),
        ("0b11", "3"),
        ("+5", "5"),
        ("1.0e+5", "100000"),
        (".nan", "nan"),
        ("2026-01-02", "a date"),
        ("2026-01-02 03:04:05Z", "a date"),
        # PyYAML reads them as text, Pulumi as numbers and a date.
        ("8.0", "8"),
        ("08", "8"),
        ("1e3", "1000"),
        ("12e03", "12000"),
        ("1e-5", "1e-05"),
        ("-.5", "-0.5"),
        ("0o22", "18"),
        ("2026-1-2", "a date"),
    ],
)
def test_a_text_that_yaml_reads_as_another_number(tmp_path: Path, text: str, read: str) -> None:
    line = refusal(tmp_path, f"environment: {{A: {text}}}")
    said = f"is read as {read}; put it in quotes: `A: '{text}'`"
    assert line == f"trainyard:jobs[0].environment.A: {text} {said}"
    assert stack(tmp_path, f"environment: {{A: '{text}'}}").jobs[0].environment == {"A": text}


def test_an_argument_that_yaml_reads_as_another_number(tmp_path: Path) -> None:
    said = "jobs[0].args[1]: 0755 is read as 493; put it in quotes: `- '0755'`"
    assert said in refusal(tmp_path, "args: [--mode, 0755]")


@pytest.mark.parametrize("text", ["3", "-3", "3.5", "0.0001", "a", "'010'", "!!str 010", "0", "'1e3'", "1e", "8.0.1"])
def test_a_text_that_is_read_as_it_is_written(tmp_path: Path, text: str) -> None:
    found = stack(tmp_path, f"environment: {{A: {text}}}").jobs[0].environment["A"]
    assert found == text.removeprefix("!!str ").strip("'")


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ("deadline_seconds: 1:00:00", "jobs[0].deadline_seconds: 1:00:00 is read as 3600; write a number in decimal"),
        (
            "flags: {epochs: 010}",
            "jobs[0].flags.epochs: 010 is read as 8; write a number in decimal, without a leading",
        ),
        ("hosts: 0x1", "jobs[0].hosts: 0x1 is read as 1; write a number in decimal"),
        ("environment: {A: !!binary aGVsbG8=}", "jobs[0].environment.A: is read as bytes; write the text itself"),
        (f"hosts: {'9' * 5000}", "jobs[0].hosts: is not a number that can be read; "),
        (
            "flags: {job: 2026-01-02}",
            "jobs[0].flags.job: 2026-01-02 is read as a date; put it in quotes: `job: '2026-01-0",
        ),
        ("flags: {job: 1.10}", "jobs[0].flags.job: 1.10 is read as 1.1; put it in quotes: `job: '1.10'`"),
        ("suspend: yes", "jobs[0].suspend: yes is read as true or as a text; write true or false, or put it in quotes"),
        ("flags: {wandb: Off}", "jobs[0].flags.wandb: Off is read as false or as a text; write true or false, or put"),
        ("environment: {A: 2026-13-45}", "jobs[0].environment.A: is not a valid date; put it in quotes"),
    ],
)
def test_a_number_that_is_another(tmp_path: Path, keys: str, said: str) -> None:
    assert said in refusal(tmp_path, keys)


@pytest.mark.parametrize(
    "keys",
    [
        "deadline_seconds: 3_600",
        "flags: {lr: 0.10}",
        "flags: {lr: 1.0e-3}",
        "flags: {lr: 1e-3}",
        "hosts: +1",
        "suspend: True",
    ],
)
def test_a_number_that_is_what_it_looks_like(tmp_path: Path, keys: str) -> None:
    assert stack(tmp_path, keys).jobs


def test_a_text_without_quotes_is_to_be_as_it_was_written(tmp_path: Path) -> None:
    account = refusal(tmp_path, "hosts: 1", "{kind: eks, account: 012345670123}")
    assert "if it is a text, put it in quotes: `account: '012345670123'`" in account
    version = refusal(tmp_path, "hosts: 1", "{kind: eks, kubernetes_version: 1.30}")
    assert "write `kubernetes_version: '1.30'`" in version


@pytest.mark.parametrize(
    "keys",
    [
        "environment: {DB_PASSWORD: @hunter2}",
        "environment: {DB_PASSWORD: *hunter2}",
        "environment: {DB_PASSWORD: !hunter2 a}",
        "environment: {DB_PASSWORD: hunter2",
        "environment: {DB_PASSWORD: 'hunter2}",
        "environment: {DB_PASSWORD: hunter2}}",
        "environment: {DB_PASSWORD: &hunter2 a, B: &hunter2 b}",
        "environment: {DB_PASSWORD: 0.120hunter2}, \t\n\thosts: 1",
        "environment: {? [hunter2] : a}",
        'environment: {DB_PASSWORD: "hunter2 \\q"}',
    ],
)
def test_what_is_no_yaml_is_not_shown(tmp_path: Path, keys: str) -> None:
    line = refusal(tmp_path, keys)
    assert "hunter2" not in line
    assert "not YAML: line " in line
    assert ", column " in line


@pytest.mark.parametrize("keys", ["environment: {DB_PASSWORD: 01234567}", "x: 1, args: [--password, 01234567]"])
def test_a_number_that_is_a_secret_is_not_shown(tmp_path: Path, keys: str) -> None:
    line = refusal(tmp_path, keys)
    assert "put it in quotes" in line
    assert "1234567" not in line
    assert str(0o1234567) not in line


@pytest.mark.parametrize("levels", [5, 7, 30])
def test_aliases_of_aliases_are_refused_at_once(tmp_path: Path, levels: int) -> None:
    begun = time.process_time()
    rows = ["v0: &v0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"v{level}: &v{level} [{', '.join([f'*v{level - 1}'] * 9)}]" for level in range(1, levels)]
    line = refusal(tmp_path, f"environment: {{{', '.join(rows)}}}")
    assert "has more than 50000 values; write fewer" in line
    assert time.process_time() - begun < 1.5


def test_an_alias_of_a_setting_is_taken(tmp_path: Path) -> None:
    found = stack(tmp_path, "environment: &e {A: &a x, B: *a}")
    assert found.jobs[0].environment == {"A": "x", "B": "x"}


def test_what_is_nested_for_ever(tmp_path: Path) -> None:
    assert "nested too deeply" in refusal(tmp_path, f"environment: {'[' * 5000}{']' * 5000}")
