"""Folders on this machine as data of recipe `language`: a folder without usable text is rejected."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infra.project import PROJECT_VARIABLE
from settings.problem import Invalid
from stack.config import parse
from tests.problems import problems_of
from tests.trainer.image_sets import ReaderRank
from tests.unit.stack_settings import error_lines, job
from trainer.config import LanguageConfig
from trainer.data.texts import SUFFIXES as TRAINER_SUFFIXES
from trainer.data.texts import TEXT_KEY as TRAINER_TEXT_KEY
from trainer.data.texts import Texts
from trainer.exit_codes import ConfigurationError, DataError, StorageError
from workloads import text_folder
from workloads.spec import JobSpec
from workloads.text_folder import SUFFIXES, TEXT_KEY, check_texts

DOCUMENT = '{"text": "A document."}\n'
ACCEPTED_FOLDERS: dict[str, dict[str, str]] = {
    "documents": {"train/a.txt": "text", "test/a.txt": "text"},
    "lines": {"train/a.jsonl": f"\n{DOCUMENT}", "test/b/c.jsonl": DOCUMENT},
    "one of several has text": {"train/a.txt": "", "train/b.txt": "text", "train/c.md": "", "test/a.jsonl": DOCUMENT},
}
"""Folders with usable text: path of each file -> its content."""
REJECTED_FOLDERS: dict[str, tuple[dict[str, str], str]] = {
    "nothing": (
        {},
        "has no folder train; must have train/ and test/, each with *.txt or *.jsonl or *.parquet or *.npy",
    ),
    "files without splits": ({"a.txt": "text"}, "has no folder train;"),
    "a file named train": ({"train": "text", "test/a.txt": "text"}, "has no folder train;"),
    "no test": ({"train/a.txt": "text"}, "has no folder test;"),
    "other suffixes": ({"train/a.md": "text", "train/b.TXT": "text"}, "has no text file in train;"),
    "empty files": (
        {"train/a.txt": "", "train/b.jsonl": "", "test/a.txt": "text"},
        'has only empty text files in train, such as "train/a.txt"; must have train/',
    ),
    "empty test": ({"train/a.txt": "text", "test/a.txt": ""}, "has only empty text files in test, such as"),
    "lines that are not JSON": (
        {"train/a.jsonl": "text", "test/a.txt": "text"},
        '"train/a.jsonl", line 1 is not a document; each line must be {"text": "..."}; create the file again',
    ),
    "JSON without text": (
        {"train/a.txt": "text", "test/a.jsonl": '\n{"content": "text"}\n'},
        '"test/a.jsonl", line 2 is not a document;',
    ),
}
"""Folders without usable text, each with a part of its error line."""


def write(folder: Path, files: dict[str, str]) -> Path:
    """Write files below a folder. Return the folder."""
    folder.mkdir()
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
    return folder


def on_folder(**changes: Any) -> dict[str, Any]:
    """Return a configuration with a job that trains on `./texts`."""
    return job(recipe="language", data="./texts", **changes)


def spec(**values: Any) -> JobSpec:
    """Return a job that trains on texts."""
    return JobSpec.model_validate({"name": "a", "recipe": "language", "data": "texts", **values})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a project."""
    monkeypatch.setenv(PROJECT_VARIABLE, str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", ACCEPTED_FOLDERS)
def test_folder_with_text_is_accepted_by_settings_and_trainer(name: str, project: Path) -> None:
    folder = write(project / "texts", ACCEPTED_FOLDERS[name])
    parse(on_folder())
    Texts(LanguageConfig(data_dir=str(folder)), ReaderRank())


@pytest.mark.parametrize("name", REJECTED_FOLDERS)
def test_folder_without_usable_text_is_rejected_by_settings_and_trainer(name: str, project: Path) -> None:
    files, message = REJECTED_FOLDERS[name]
    folder = write(project / "texts", files)
    (line,) = error_lines(on_folder())
    assert line.startswith('trainyard:jobs[0].data = "./texts": ')
    assert message in line
    with pytest.raises(StorageError if name == "a file named train" else DataError):
        Texts(LanguageConfig(data_dir=str(folder)), ReaderRank())


@pytest.mark.parametrize("has_documents", [False, True])
def test_rows_of_tokens_with_learnt_tokenizer_are_rejected_by_settings_and_trainer(
    has_documents: bool, project: Path
) -> None:
    files = {f"{split}/b.txt": "text" for split in ("train", "test")} if has_documents else {}
    folder = write(project / "texts", files)
    for split in ("train", "test"):
        (folder / split).mkdir(exist_ok=True)
        np.save(folder / split / "a.npy", np.arange(256, dtype=np.uint16))
    parse(on_folder())
    assert problems_of(on_folder(flags={"tokenizer": "bpe"})) == [("job.data.learnt_tokens", "jobs.0.data")]
    with pytest.raises(ConfigurationError):
        Texts(LanguageConfig(data_dir=str(folder), tokenizer="bpe"), ReaderRank())


@pytest.mark.parametrize("changes", [{"recipe": "imagenet"}, {"recipe": None, "script": "./train.py"}])
def test_folder_for_another_recipe_script_or_image_needs_no_text(changes: dict[str, Any], tmp_path: Path) -> None:
    check_texts(spec(**changes), tmp_path)
    check_texts(spec(image="example.com/mine:1"), tmp_path)
    with pytest.raises(Invalid):
        check_texts(spec(image="frameworks"), tmp_path)


def test_only_first_files_and_first_lines_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "texts", {"train/a.md": "", "train/b.txt": "text", "test/a.jsonl": DOCUMENT * 2})
    monkeypatch.setattr(text_folder, "MAX_FILES", 1)
    check_texts(spec(), folder)
    (folder / "test" / "a.jsonl").write_text(f"{DOCUMENT}not a document\n{DOCUMENT}", encoding="utf-8")
    check_texts(spec(), folder)
    (folder / "test" / "a.jsonl").write_text('{"content": "a long line"}', encoding="utf-8")
    monkeypatch.setattr(text_folder, "MAX_LINE_BYTES", 9)
    check_texts(spec(), folder)


def test_links_are_followed_and_pipes_are_skipped(tmp_path: Path) -> None:
    folder = write(tmp_path / "texts", {"test/a.txt": "text", "other/a.txt": "text"})
    (folder / "train").mkdir()
    os.mkfifo(folder / "train" / "b.jsonl")
    (folder / "train" / "c.txt").symlink_to("absent.txt")
    with pytest.raises(Invalid, match="no text file in train"):
        check_texts(spec(), folder)
    (folder / "train" / "more").symlink_to(folder / "other")
    check_texts(spec(), folder)


def test_suffixes_and_key_equal_those_of_trainer() -> None:
    assert (tuple(SUFFIXES.values()), TEXT_KEY) == (TRAINER_SUFFIXES, TRAINER_TEXT_KEY)
