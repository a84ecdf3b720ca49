"""Scripts that no pod could run are refused with what to write; any path that may be one of a Python file is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stack import validation
from stack.config import parse
from tests.problems import refused
from tests.unit.refused import job, refusals
from workloads.validation import images


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
    ("path", "code"),
    [
        ("gs://b/x.py", "url"),
        ("s3://b/x.py", "url"),
        ("https://example.com/x.py", "url"),
        ("~/x.py", "home"),
        ("-c", "option"),
        ("-m pkg", "option"),
        (" ", "blank"),
        ("/opt/train.py --epochs 3", "blank"),
        ("/opt/run.sh", "other_file"),
        ("/bucket/train.ipynb", "other_file"),
        ("/opt/train\0.py", "control_character"),
        ("./README.md", "not_python"),
        ("./deep", "not_python"),
        ("./my train.py", "file_name"),
        ("./train.py --epochs 3", "file_name"),
        ("./..py", "file_name"),
        (f"./{'a' * 251}.py", "file_name"),
        ("./../outside.py", "outside"),
        ("../outside.py", "outside"),
        ("./link.py", "outside"),
        ("train.py", "without_dot"),
    ],
)
def test_script_not_runnable_in_pods_has_code_and_path(path: str, code: str) -> None:
    assert refused(script(path)) == [(f"job.script.{code}", "jobs.0.script")]


def test_script_absolute_path_in_checkout_is_rejected_for_builtin_image(checkout: Path) -> None:
    path = str(checkout / "deep" / "train_2.py")
    (line,) = refusals(script(path))
    assert "is a file of this checkout, not of the image; write ./deep/train_2.py" in line
    assert parse(script(path, image="trainyard.local/a:1")).jobs[0].script == path


@pytest.mark.usefixtures("checkout")
@pytest.mark.parametrize("path", ["./train.py", "./deep/train_2.py", "./deep/../train.py", "./inside.py"])
def test_script_of_checkout_is_accepted(path: str) -> None:
    assert parse(script(path)).jobs[0].script == path


@pytest.mark.parametrize("path", ["/opt/train.py", "/opt/train", "/opt/app.pyz", "train.py", "/bucket/train.py"])
def test_script_of_image_is_accepted(path: str) -> None:
    assert parse(script(path, image="trainyard.local/a:1")).jobs[0].script == path
