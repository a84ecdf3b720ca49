"""Each stack has a current page."""

from __future__ import annotations

import pytest

from docs import stack_pages


@pytest.mark.parametrize("stack", stack_pages.STACKS)
def test_the_page_is_current(stack: str) -> None:
    written = (stack_pages.TARGET / f"{stack}.md").read_text(encoding="utf-8")
    assert written == stack_pages.render(stack), "run `python -m docs.stack_pages`"


def test_there_is_no_page_of_a_stack_that_is_gone() -> None:
    assert sorted(path.stem for path in stack_pages.TARGET.glob("*.md")) == sorted(stack_pages.STACKS)
