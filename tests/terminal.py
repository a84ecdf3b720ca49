"""Text stream that claims to be a terminal, and its text without colours."""

from __future__ import annotations

import io
import re


class Terminal(io.StringIO):
    """Text stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True

    @property
    def lines(self) -> list[str]:
        """Lines without escape sequences of colours and styles."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.getvalue()).splitlines()
