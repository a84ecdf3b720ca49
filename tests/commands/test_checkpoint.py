"""State files that a killed `pulumi` left half written."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands.checkpoint import repair


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / ".pulumi" / "stacks" / "trainyard"
    folder.mkdir(parents=True)
    for name, text in (("dev.json", '{"new": 1}'), ("dev.json.bak", '{"old": 1}'), ("dev.json.attrs", '{"a": ""}')):
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "dev.json"


def test_files_that_can_be_read_stay_as_they_are(state: Path, tmp_path: Path) -> None:
    assert repair(f"file://{tmp_path}", "dev") == []
    assert state.read_text(encoding="utf-8") == '{"new": 1}'
    assert Path(f"{state}.attrs").exists()


def test_attributes_that_were_cut_off_go(state: Path, tmp_path: Path) -> None:
    Path(f"{state}.attrs").write_text("", encoding="utf-8")
    assert repair(f"file://{tmp_path}", "dev") == ["dev.json.attrs was cut off and is removed"]
    assert not Path(f"{state}.attrs").exists()
    assert state.read_text(encoding="utf-8") == '{"new": 1}'


@pytest.mark.parametrize("text", ["", '{"new": '])
def test_a_state_that_was_cut_off_gives_way_to_the_one_before(state: Path, tmp_path: Path, text: str) -> None:
    state.write_text(text, encoding="utf-8")
    assert len(repair(f"file://{tmp_path}", "dev")) == 1
    assert state.read_text(encoding="utf-8") == '{"old": 1}'


def test_other_stacks_and_other_backends_are_not_touched(state: Path, tmp_path: Path) -> None:
    state.write_text("", encoding="utf-8")
    assert repair(f"file://{tmp_path}", "other") == []
    assert repair("gs://bucket", "dev") == []
    assert state.read_text(encoding="utf-8") == ""
