"""Site of the documentation: its navigation has every page, and its links lead to its own pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from docs.references import FOLDER as DOCS
from docs.site_hook import OUTSIDE, PROJECT, site_links, site_page

SETTINGS = (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")
NAVIGATION = re.findall(r"(?m)^ +- (?:.*: )?([\w/.-]+\.md)$", SETTINGS.partition("\nnav:\n")[2])
PAGES = sorted([*(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")), *OUTSIDE.values()])


def test_navigation_has_every_page_once() -> None:
    assert sorted(NAVIGATION) == PAGES


@pytest.mark.parametrize(
    ("page", "link", "expected"),
    [
        ("README.md", "[a](../CHANGELOG.md)", "[a](project/changelog.md)"),
        ("recipes/elastic.md", "[a](../trainer.md#images)", "[a](../trainer.md#images)"),
        ("project/readme.md", "[a](docs/stacks/dev.md)", "[a](../stacks/dev.md)"),
        ("project/readme.md", "[a](docs/recipes)", "[a](../recipes/README.md)"),
        ("project/readme.md", "[a](LICENSE)", "a"),
        ("data.md", "[a](missing.md) [b](#here) [c](https://example.com/d.md)", None),
    ],
)
def test_site_links_lead_to_pages_of_the_site(page: str, link: str, expected: str | None) -> None:
    assert site_links(link, page) == (expected or link)


def test_site_page_of_a_python_file_is_none() -> None:
    assert site_page("docs/references.py") is None


@pytest.mark.parametrize("page", [*DOCS.rglob("*.md"), *map(PROJECT.joinpath, OUTSIDE)], ids=lambda page: page.name)
def test_page_blocks_in_lists_are_indented_for_both_renderers(page: Path) -> None:
    # Python-Markdown needs four spaces before a block in a list and an empty line after it. GitHub needs neither.
    text = re.sub(r"(?ms)^```.*?^```$", "", page.read_text(encoding="utf-8"))
    assert re.findall(r"(?m)^ {1,3}(?:```|\||[-*] |\d+\. ).*$", text) == []
    assert re.findall(r"(?m)^ {4,}.*\n(?:\d+\.|-) .*$", text) == [], "add an empty line after the last block of an item"
