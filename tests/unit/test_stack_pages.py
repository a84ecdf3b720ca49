"""Each stack has a current page."""

from __future__ import annotations

import pytest

from docs import stack_pages


@pytest.mark.parametrize("stack", stack_pages.STACKS)
def test_stack_page_is_current(stack: str) -> None:
    written = (stack_pages.TARGET / f"{stack}.md").read_text(encoding="utf-8")
    assert written == stack_pages.render(stack), "run `python -m docs.stack_pages`"


def test_stack_pages_are_those_of_existing_stacks() -> None:
    assert sorted(path.stem for path in stack_pages.TARGET.glob("*.md")) == sorted(stack_pages.STACKS)
