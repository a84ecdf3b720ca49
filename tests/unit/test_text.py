"""Text of messages: counted nouns, and line breaks only on a terminal and only at spaces."""

from __future__ import annotations

import io

import pytest

from settings.text import counted, wrap, wrap_line
from tests.terminal import Terminal


def test_wrap_breaks_only_at_blanks_and_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    text = "trainyard up: failed-with a-long/path/that/is/wider/than/it\nsecond line"
    assert wrap(text, io.StringIO()) == text
    assert wrap(text, Terminal()).split("\n") == [
        "trainyard up:",
        "failed-with",
        "a-long/path/that/is/wider/than/it",
        "second line",
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", [""]),
        ("1234567890", ["1234567890"]),
        ("1234567890 1", ["1234567890", "1"]),
        ("  indented text", ["  indented", "    text"]),
        ("a  two  blanks", ["a  two", "blanks"]),
    ],
)
def test_wrap_line_indents_the_rest_of_an_indented_line(line: str, expected: list[str]) -> None:
    assert wrap_line(line, 10) == expected


@pytest.mark.parametrize(("number", "expected"), [(0, "0 hosts"), (1, "1 host"), (2, "2 hosts"), (1024, "1,024 hosts")])
def test_counted_noun_agrees_with_its_number(number: int, expected: str) -> None:
    assert counted(number, "host") == expected


def test_counted_noun_has_the_given_plural() -> None:
    assert [counted(each, "has", "have") for each in (1, 2)] == ["1 has", "2 have"]
