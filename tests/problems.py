"""Code and path of a configuration's problems. They stay the same when the message changes."""

from __future__ import annotations

from typing import Any

import pytest

from settings.problems import ConfigError
from stack.config import parse


def refused(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Return code and path of each problem of an invalid configuration."""
    with pytest.raises(ConfigError) as caught:
        parse(values)
    text = str(caught.value)
    assert text.isascii()
    assert "pydantic" not in text
    assert "Input should" not in text
    return [(each.code, ".".join(map(str, each.path))) for each in caught.value.problems]
