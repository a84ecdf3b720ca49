"""Headless Chromium, which shows the pages that commands write or serve."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed, so no browser shows the page")


def draw(url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Open a page and run its scripts. The result's stdout is the HTML; its stderr has the browser's messages."""
    assert CHROMIUM is not None
    words = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}/profile"]
    words += ["--enable-logging=stderr", "--virtual-time-budget=3000", "--dump-dom", url]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
