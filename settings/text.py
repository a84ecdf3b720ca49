"""Text for people: counted nouns, and line breaks of long sentences on a terminal."""

from __future__ import annotations

import shutil
import textwrap
from typing import IO


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 host`, `1,024 hosts`. `plural` is the noun's plural if it is not noun + `s`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def wrap(text: str, out: IO[str]) -> str:
    """Break lines that are wider than the terminal. Return the text unchanged for other outputs.

    Break only at spaces, so that a long path stays in one piece. Indent the rest of an indented line further.
    """
    if not out.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(each for line in text.split("\n") for each in wrap_line(line, width))


def wrap_line(line: str, width: int) -> list[str]:
    """Return a line in pieces of at most `width` characters. A longer word is one piece."""
    if len(line) <= width:
        return [line]
    blanks = line[: len(line) - len(line.lstrip())]
    indent = f"{blanks}  " if blanks else ""
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=indent,
        expand_tabs=False,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )
