"""Examples: jobs that are ready to run, each the first YAML block of a page in docs/recipes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "recipes"
_BLOCK = re.compile(r"^```yaml\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


def example_names() -> list[str]:
    """Return the names of all examples."""
    return sorted(path.stem for path in FOLDER.glob("*.md") if path.stem != "README")


def yaml_blocks(name: str) -> list[str]:
    """Return the YAML blocks of an example's page: the job, then its variants for other platforms."""
    return [match["text"] for match in _BLOCK.finditer((FOLDER / f"{name}.md").read_text(encoding="utf-8"))]


def example_jobs(name: str) -> list[dict[str, Any]]:
    """Return the jobs of an example in plain values. Raises ValueError for an unknown name."""
    # Import here: a stack without examples does not need it.
    import yaml

    if name not in example_names():
        raise ValueError(f"is not an example; write one of {', '.join(example_names())}, or the keys of a job")
    jobs: list[dict[str, Any]] = yaml.safe_load(yaml_blocks(name)[0])
    return jobs
