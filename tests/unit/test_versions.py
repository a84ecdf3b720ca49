"""docs/versions.md matches the pins, is complete, and marks parts without support."""

from __future__ import annotations

import re
from datetime import date, timedelta

import pytest

from docs import versions_reference
from docs.versions_reference import GROUPS, PROJECT, Part

PARTS = [part for parts in GROUPS.values() for part in parts]


def test_versions_page_is_current() -> None:
    written = versions_reference.TARGET.read_text(encoding="utf-8")
    assert written == versions_reference.render(), "run `python -m docs.versions_reference`"


@pytest.mark.parametrize("part", [part for part in PARTS if part.ends], ids=lambda part: part.name)
def test_versions_page_part_has_month_of_support(part: Part) -> None:
    assert part.ends is not None
    left = part.ends - date.today()
    assert left > timedelta(days=30), f"update {part.name} in {part.pin}, or the date of its support"


@pytest.mark.parametrize("pin", ["requirements.in", "trainer/requirements.in", "trainer/requirements-xla.in"])
def test_versions_page_lists_python_packages(pin: str) -> None:
    names = re.findall(r"(?m)^([\w-]+)(?:\[\w+\])?==", (PROJECT / pin).read_text(encoding="utf-8"))
    listed = {part.package for part in PARTS}
    assert names
    assert set(names) <= listed


def test_versions_page_lists_go_programs() -> None:
    pins = {path.relative_to(PROJECT).as_posix() for path in PROJECT.glob("setup/go/*/go.mod")}
    without_modules = {"setup/go/pause/go.mod"}
    development = {"setup/go/actionlint/go.mod"}
    assert pins - without_modules - development == {part.pin for part in PARTS if part.pin.startswith("setup/go/")}


def test_version_of_unpinned_package_raises() -> None:
    part = Part(name="absent", package="absent", pin="requirements.in", rule="")
    with pytest.raises(ValueError, match=r"requirements\.in does not pin absent"):
        assert part.version
