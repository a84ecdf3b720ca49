"""Format of a changed value in a report."""

from __future__ import annotations

from typing import Any

import pytest

from commands.review.report import spelled

SECRET = {"4dabf18193072939515e22adb298388d": "1b47061264138c4ac30d75fd1eb44270", "value": "canary"}


@pytest.mark.parametrize(
    ("path", "before", "after", "expected"),
    [
        ("nodeCount", {"nodeCount": 2.0}, {"nodeCount": 4}, "nodeCount `2` -> `4`"),
        ("a.b", {"a": {"b": "x", "c": 1}}, {"a": {"b": "y", "c": 2}}, "a.b `x` -> `y`"),
        ("a", {}, {"a": True}, "a nothing -> `true`"),
        ("a", {"a": ""}, {}, 'a `""` -> nothing'),
        ("a", {"a": [1, 2]}, {"a": [1, 3]}, "a[1] `2` -> `3`"),
        (
            "env",
            {"env": [{"name": "A", "value": "1"}]},
            {"env": [{"name": "B", "value": "2"}, {"name": "A", "value": "1"}]},
            "env[B].name nothing -> `B`, env[B].value nothing -> `2`",
        ),
        (
            "a",
            {"a": [1, 2, 3, 4]},
            {"a": [5, 6, 7, 8]},
            "a[0] `1` -> `5`, a[1] `2` -> `6`, a[2] `3` -> `7`, and 1 more",
        ),
        ("a", {"a": "x" * 30 + "y" * 30 + "z" * 30}, {}, "a `" + "x" * 30 + "..." + "z" * 30 + "` -> nothing"),
        ("a", {"a": "one"}, {"a": "`two`"}, "a `one` -> `'two'`"),
        ("data", {"data": {"f": "1\n2"}}, {"data": {"f": "1\n3"}}, "data"),
        ("provider aws", {}, {}, "provider aws"),
    ],
)
def test_a_change(path: str, before: dict[str, Any], after: dict[str, Any], expected: str) -> None:
    assert spelled(path, before, after) == expected


@pytest.mark.parametrize("secret", [SECRET, "[secret]"])
def test_a_secret_is_not_spelled(secret: Any) -> None:
    assert spelled("a", {"a": {"b": secret}}, {"a": {"b": "other"}}) == "a"
    assert spelled("a", {"a": {"b": "other"}}, {"a": {"b": secret}}) == "a"


def test_what_is_known_later_is_not_spelled() -> None:
    assert spelled("a", {"a": "b"}, {"a": "04da6b54-80e4-46f7-96ec-b56ff0331ba9"}) == "a"
