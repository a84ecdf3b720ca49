"""Problems of an invalid configuration by code and path, which stay the same when a message changes."""

from __future__ import annotations

from typing import Any

import pytest

from settings.problems import ConfigError
from stack.config import parse


def problems_of(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Return code and path of each problem. Assert that each has one ASCII line without pydantic's wording."""
    with pytest.raises(ConfigError) as caught:
        parse(values)
    lines, problems = str(caught.value).splitlines(), caught.value.problems
    assert len(lines) == len(problems)
    for line in lines:
        assert line.startswith("trainyard:")
        assert line.isascii()
        assert "pydantic" not in line
        assert "Input should" not in line
    return [(each.code, ".".join(map(str, each.path))) for each in problems]
