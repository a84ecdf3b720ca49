"""State files of a stack: repair of damage by a crash or an edit, and pending operations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands.environment import StateBroken
from commands.stack_files import StateFiles

PROJECT = "trainyard"


def state_with(time: str, **latest: object) -> str:
    """Return the text of a state that Pulumi wrote at `time`."""
    return json.dumps({"version": 3, "checkpoint": {"latest": {"manifest": {"time": time}, **latest}}})


NEW, OLD = state_with("new"), state_with("old")
RESOURCE = {"urn": "urn:pulumi:dev::trainyard::some:Type::one", "type": "some:Type"}


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """Return the state file of stack `dev`. Its backup and its attributes are next to it."""
    folder = tmp_path / ".pulumi" / "stacks" / PROJECT
    folder.mkdir(parents=True)
    for name, text in (("dev.json", NEW), ("dev.json.bak", OLD), ("dev.json.attrs", '{"a": ""}')):
        (folder / name).write_text(text, encoding="utf-8")
    return folder / "dev.json"


def test_repair_of_intact_files_changes_nothing(state: Path, tmp_path: Path) -> None:
    assert StateFiles(tmp_path, PROJECT, "dev").repair() == []
    assert state.read_text(encoding="utf-8") == NEW
    assert Path(f"{state}.attrs").exists()


def test_repair_of_a_state_with_resources_and_pending_operations_changes_nothing(state: Path, tmp_path: Path) -> None:
    pending = [{"type": "creating", "resource": RESOURCE}]
    state.write_text(state_with("new", resources=[{**RESOURCE, "parent": None}], pending_operations=pending))
    assert StateFiles(tmp_path, PROJECT, "dev").repair() == []


def test_repair_of_truncated_attributes_removes_them(state: Path, tmp_path: Path) -> None:
    Path(f"{state}.attrs").write_text("", encoding="utf-8")
    assert StateFiles(tmp_path, PROJECT, "dev").repair() == ["dev.json.attrs was truncated and is removed"]
    assert not Path(f"{state}.attrs").exists()
    assert state.read_text(encoding="utf-8") == NEW


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"new": ',
        "\0" * 100,
        "{}",
        "[]",
        '{"version": 3, "checkpoint": {"latest": null}}',
        NEW.replace("3", '"x"'),
        state_with("new", resources=7),
        state_with("new", resources=[7]),
        state_with("new", resources=[{**RESOURCE, "urn": 7}]),
        state_with("new", resources=[{**RESOURCE, "type": None}]),
        state_with("new", resources=[{**RESOURCE, "outputs": "x"}]),
        state_with("new", pending_operations=[{"type": "creating"}]),
    ],
)
def test_repair_of_a_damaged_state_uses_its_backup(state: Path, tmp_path: Path, text: str) -> None:
    state.write_text(text, encoding="utf-8")
    (message,) = StateFiles(tmp_path, PROJECT, "dev").repair()
    assert "using the state before the last write" in message
    assert state.read_text(encoding="utf-8") == OLD
    assert Path(f"{state}.broken").read_text(encoding="utf-8") == text


def test_repair_of_a_damaged_state_and_backup_uses_the_newest_intact_backup_of_a_command(
    state: Path, tmp_path: Path
) -> None:
    backups = tmp_path / ".pulumi" / "backups" / PROJECT / "dev"
    backups.mkdir(parents=True)
    for number, text in ((1, OLD), (2, state_with("second")), (3, NEW[:-9])):
        (backups / f"dev.179556250874715130{number}.json").write_text(text, encoding="utf-8")
    for each in (state, Path(f"{state}.bak")):
        each.write_text("", encoding="utf-8")
    (message,) = StateFiles(tmp_path, PROJECT, "dev").repair()
    assert "at the end of an earlier command (dev.1795562508747151302.json)" in message
    assert state.read_text(encoding="utf-8") == state_with("second")


def test_repair_without_an_intact_copy_raises_and_changes_nothing(state: Path, tmp_path: Path) -> None:
    for each in (state, Path(f"{state}.bak")):
        each.write_text("{", encoding="utf-8")
    with pytest.raises(StateBroken, match=r"dev\.json is damaged and has no intact copy"):
        StateFiles(tmp_path, PROJECT, "dev").repair()
    assert state.read_text(encoding="utf-8") == "{"


@pytest.mark.usefixtures("state")
def test_set_aside_renames_the_state(tmp_path: Path) -> None:
    assert StateFiles(tmp_path, PROJECT, "dev").set_aside().name == "dev.json.broken"
    assert not StateFiles(tmp_path, PROJECT, "dev").exists


def test_repair_leaves_other_stacks_and_projects(state: Path, tmp_path: Path) -> None:
    state.write_text("", encoding="utf-8")
    assert StateFiles(tmp_path, PROJECT, "other").repair() == []
    assert StateFiles(tmp_path, "other", "dev").repair() == []
    assert state.read_text(encoding="utf-8") == ""


def test_pending_operations_names_resources(state: Path, tmp_path: Path) -> None:
    urn = "urn:pulumi:dev::trainyard::some:Type::"
    pending = [
        {"type": "creating", "resource": {"urn": f"{urn}nodes"}},
        {"type": "deleting", "resource": {"urn": f"{urn}local-processes"}},
    ]
    state.write_text(json.dumps({"checkpoint": {"latest": {"pending_operations": pending}}}), encoding="utf-8")
    assert StateFiles(tmp_path, PROJECT, "dev").pending_operations() == [
        "creating nodes",
        "deleting the cluster's processes",
    ]
    state.write_text("", encoding="utf-8")
    assert StateFiles(tmp_path, PROJECT, "dev").pending_operations() == []
