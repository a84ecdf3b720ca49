"""MkDocs hook of `make docs`: pages outside of docs/, links between pages, and search in local files."""

from __future__ import annotations

import posixpath
import re
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

PROJECT = Path(__file__).resolve().parents[1]
OUTSIDE: Mapping[str, str] = MappingProxyType(
    {
        "CONTRIBUTING.md": "project/contributing.md",
        "CHANGELOG.md": "project/changelog.md",
        "README.md": "project/readme.md",
        "setup/stand_ins/README.md": "project/stand-ins.md",
    }
)
"""Page of the project outside of docs/ -> its page in the site."""
SHIM = "iframe-worker@1.0.4"
"""npm package with the script that makes search work in pages opened as local files."""
SHIM_INTEGRITY = "sha512-roeaaI+Lg1LJNfgpCjoRe/+WzEjy9+Z08LoEvu85MCPbBjwm+qXz8Ag5U05lHa6V1CysZyGzE0SOkAtSUA5q7Q=="
"""SHA-512 of the package, as published by the npm registry."""
SHIM_PAGE = "assets/javascripts/iframe-worker.js"
"""Path of the script in the site."""
SHIM_CACHE = PROJECT / ".venv-docs" / f"{SHIM}.js"
LINK = re.compile(r"\[(?P<text>[^][]*)\]\((?!https?:|#)(?P<path>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
"""Markdown link to a file."""


def on_config(config: Any) -> None:
    """Load the script from the site itself. The offline plugin alone would load it from the network."""
    config.extra["polyfills"] = [SHIM_PAGE]


def on_files(files: Any, config: Any) -> Any:
    """Add the pages outside of docs/ and the script to the site."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, SHIM_PAGE, content=shim()))
    for path, page in OUTSIDE.items():
        files.append(File.generated(config, page, content=(PROJECT / path).read_text(encoding="utf-8")))
    return files


def shim() -> str:
    """Return the script's text. Download the script once for each environment of `make docs`."""
    from setup.datasets import fetch_package

    if not SHIM_CACHE.exists():
        with tempfile.TemporaryDirectory() as folder:
            archive = fetch_package(SHIM, SHIM_INTEGRITY, Path(folder))
            with tarfile.open(archive) as package:
                member = package.extractfile("package/shim/index.js")
                SHIM_CACHE.write_bytes(member.read() if member else b"")
    return SHIM_CACHE.read_text(encoding="utf-8")


def on_page_markdown(markdown: str, page: Any, **_context: Any) -> str:
    """Return a page's text with links that work in the site."""
    return site_links(markdown, page.file.src_uri)


def site_links(markdown: str, page: str) -> str:
    """Return a page's text with links that work in the site. Links to files outside of the site become plain text.

    `page` is the path of the page in the site.
    """
    source = {site: path for path, site in OUTSIDE.items()}.get(page, f"docs/{page}")

    def site_link(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link["path"]))
        if not (PROJECT / target).exists():
            return link[0]
        target_page = site_page(target)
        if target_page is None:
            return link["text"]
        path = posixpath.relpath(target_page, posixpath.dirname(page) or ".")
        return f"[{link['text']}]({path}{link['anchor'] or ''})"

    return LINK.sub(site_link, markdown)


def site_page(path: str) -> str | None:
    """Return the site's page for a file or folder of the project, or None if it has none."""
    if path in OUTSIDE:
        return OUTSIDE[path]
    if (PROJECT / path).is_dir():
        path = f"{path}/README.md"
    inside = path.removeprefix("docs/")
    return inside if inside != path and (PROJECT / path).is_file() and path.endswith((".md", ".png", ".svg")) else None
