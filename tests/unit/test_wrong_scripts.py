"""Scripts that no pod could run are refused with what to write; any path that may be one of a Python file is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stack import validation
from stack.config import parse
from tests.unit.refused import job, refusals
from workloads.validation import images

IN_IMAGE = "write a path in the image, such as /opt/train.py, or ./train.py for a file of this checkout"


def script(path: str, **changes: Any) -> dict[str, Any]:
    """A configuration with a script."""
    return job(recipe=None, script=path, **changes)


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with some files."""
    folder = tmp_path / "checkout"
    for name in ("train.py", "my train.py", "README.md", "..py", "deep/train_2.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("print(1)\n", encoding="utf-8")
    (tmp_path / "outside.py").write_text("print(1)\n", encoding="utf-8")
    (folder / "link.py").symlink_to(tmp_path / "outside.py")
    (folder / "inside.py").symlink_to(folder / "train.py")
    monkeypatch.setattr(validation, "CHECKOUT", folder)
    monkeypatch.setattr(images, "PROJECT", folder)
    return folder


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("gs://b/x.py", f"is a URL, and Python opens files; {IN_IMAGE}"),
        ("s3://b/x.py", f"is a URL, and Python opens files; {IN_IMAGE}"),
        ("https://example.com/x.py", f"is a URL, and Python opens files; {IN_IMAGE}"),
        ("~/x.py", f"has a home directory that no shell fills in; {IN_IMAGE}"),
        ("-c", f"is an option, and what runs is a file; {IN_IMAGE}"),
        ("-m pkg", f"is an option, and what runs is a file; {IN_IMAGE}"),
        (" ", f"has a blank; {IN_IMAGE}, and its arguments as `args`"),
        ("/opt/train.py --epochs 3", f"has a blank; {IN_IMAGE}, and its arguments as `args`"),
        ("/opt/run.sh", f"is no Python file, and Python runs it; {IN_IMAGE}"),
        ("/bucket/train.ipynb", f"is no Python file, and Python runs it; {IN_IMAGE}"),
        ("/opt/train\0.py", f"has a control character; {IN_IMAGE}"),
        ("./README.md", f"is no Python file, whose name ends in .py; {IN_IMAGE}"),
        ("./deep", f"is no Python file, whose name ends in .py; {IN_IMAGE}"),
        ("./my train.py", "must have a file name that pods can be given, of at most 253 letters"),
        ("./train.py --epochs 3", "write arguments as `args`"),
        ("./..py", "must have a file name that pods can be given"),
        (f"./{'a' * 251}.py", "of at most 253 letters"),
        ("./../outside.py", "is outside of "),
        ("../outside.py", "is outside of "),
        ("./link.py", "is outside of "),
        ("train.py", "is a file of this checkout, not of the image; write ./train.py"),
    ],
)
def test_a_script_is_refused(path: str, why: str) -> None:
    (line,) = refusals(script(path))
    assert line.startswith("trainyard:jobs[0].script = ")
    assert why in line


def test_the_whole_path_of_a_file_of_the_checkout(checkout: Path) -> None:
    path = str(checkout / "deep" / "train_2.py")
    (line,) = refusals(script(path))
    assert "is a file of this checkout, not of the image; write ./deep/train_2.py" in line
    assert parse(script(path, image="trainyard.local/a:1")).jobs[0].script == path


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("path", ["./train.py", "./deep/train_2.py", "./deep/../train.py", "./inside.py"])
def test_a_script_of_the_checkout_is_taken(path: str) -> None:
    assert parse(script(path)).jobs[0].script == path


@pytest.mark.parametrize("path", ["/opt/train.py", "/opt/train", "/opt/app.pyz", "train.py", "/bucket/train.py"])
def test_a_script_of_an_image_is_taken(path: str) -> None:
    assert parse(script(path, image="trainyard.local/a:1")).jobs[0].script == path
