"""Generated pages of docs/ are current."""

from __future__ import annotations

import pytest

from docs.references import FOLDER, STACKS, pages

PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_the_page_is_current(name: str) -> None:
    assert (FOLDER / name).read_text(encoding="utf-8") == PAGES[name], "run `python -m docs.references`"


def test_there_is_no_page_of_a_stack_that_is_gone() -> None:
    assert sorted(path.stem for path in (FOLDER / "stacks").glob("*.md")) == sorted(STACKS)
