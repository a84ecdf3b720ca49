"""docs/versions.md is complete and marks parts without support."""

from __future__ import annotations

import re
from datetime import date, timedelta

import pytest

from docs.versions_reference import GROUPS, PROJECT, Part

PARTS = [part for parts in GROUPS.values() for part in parts]


@pytest.mark.parametrize("part", [part for part in PARTS if part.ends], ids=lambda part: part.name)
def test_a_part_is_supported_for_another_month(part: Part) -> None:
    assert part.ends is not None
    left = part.ends - date.today()
    assert left > timedelta(days=30), f"update {part.name} in {part.pin}, or the date of its support"


@pytest.mark.parametrize("pin", ["requirements.in", "trainer/requirements.in", "trainer/requirements-xla.in"])
def test_every_python_package_of_a_pin_is_listed(pin: str) -> None:
    names = re.findall(r"(?m)^([\w-]+)(?:\[\w+\])?==", (PROJECT / pin).read_text(encoding="utf-8"))
    listed = {part.package for part in PARTS}
    assert names
    assert set(names) <= listed


def test_every_go_program_is_listed() -> None:
    pins = {path.relative_to(PROJECT).as_posix() for path in PROJECT.glob("setup/go/*/go.mod")}
    without_modules = {"setup/go/pause/go.mod"}
    development = {"setup/go/actionlint/go.mod"}
    assert pins - without_modules - development == {part.pin for part in PARTS if part.pin.startswith("setup/go/")}


def test_a_package_that_is_not_pinned_is_an_error() -> None:
    part = Part(name="absent", package="absent", pin="requirements.in", rule="")
    with pytest.raises(ValueError, match=r"requirements\.in does not pin absent"):
        assert part.version
