"""Line breaks in long messages, only on a terminal and only at blanks."""

from __future__ import annotations

import io

import pytest

from infra.wrapping import wrap, wrap_line


class Terminal(io.StringIO):
    """Output that is a terminal."""

    def isatty(self) -> bool:
        return True


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
