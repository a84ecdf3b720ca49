"""docs/clouds.md refers to existing tests and existing keys of the tutorial."""

from __future__ import annotations

import re
from pathlib import Path

from tests.unit import test_wrong_eks, test_wrong_gke

PROJECT = Path(__file__).parents[2]
REFUSED = {*test_wrong_gke.CASES, *test_wrong_gke.CODES, *test_wrong_eks.CASES, *test_wrong_eks.CODES}
TEXT = (PROJECT / "docs" / "clouds.md").read_text(encoding="utf-8")


def section(title: str) -> list[list[str]]:
    """Return the cells of the rows of a section's table, without its header."""
    body = TEXT.partition(f"## {title}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in body.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows[2:]]


def test_every_trap_names_a_test_that_there_is() -> None:
    paths = list((PROJECT / "tests").rglob("test_*.py"))
    sources, files = "\n".join(path.read_text(encoding="utf-8") for path in paths), {path.stem for path in paths}
    rows = section("Traps that are handled")
    assert len(rows) > 15
    for _trap, _done, tests in rows:
        named = re.findall(r"`([^`]+)`", tests)
        assert named
        for name in named:
            assert name in REFUSED or f"def {name}(" in sources or name in files


def test_every_option_of_the_walk_through_has_a_key() -> None:
    reference = (PROJECT / "docs" / "config.md").read_text(encoding="utf-8")
    rows = section("The tutorial's options")
    assert len(rows) == 12
    for _option, keys, _default in rows:
        for key in re.findall(r"`([^`]+)`", keys):
            assert key == "jobs[]" or f"| `{key.rpartition('.')[2]}` |" in reference
