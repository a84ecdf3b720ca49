"""Number of parameter servers that fit on a cloud platform's nodes: a configuration that follows the error is
accepted."""

from __future__ import annotations

import pytest

from settings.problems import ConfigError
from tests.unit.test_capacity import C7, MX, stack


def test_parameter_servers_suggested_by_error_are_accepted() -> None:
    platform = {"kind": "eks", "pools": C7}
    with pytest.raises(ConfigError, match="write 2 or less"):
        stack(platform, {**MX, "parameter_servers": 3})
    assert stack(platform, {**MX, "parameter_servers": 2}).jobs[0].parameter_servers == 2
    more = {"kind": "eks", "pools": [{**C7[0], "nodes": 3}]}
    assert stack(more, {**MX, "parameter_servers": 3}).jobs[0].parameter_servers == 3
