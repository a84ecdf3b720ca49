"""Pulumi's CLI for a stack: creation, kubeconfig, set-up, provider files, damaged states, locks, and `config`."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from commands import interrupts, stack, stack_files, stack_settings
from commands.environment import PROJECT, StackBusy, StateBroken
from commands.interrupts import Child
from infra.kubeconfig import PROVIDER_TMPDIR

SALT_LINE = "encryptionsalt: v1:wSbwJZDAAIU=:v1:B6IjODyc4eQUgTZv:PyJ4UDF0sutIA6orBHgXRoq9IlMcvw=="
"""Line of a settings file with the salt of an unknown passphrase."""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a Pulumi project without stacks. Its subfolder `state` is the backend."""
    (tmp_path / "Pulumi.yaml").write_text("name: several\nruntime: python\n", encoding="utf-8")
    (tmp_path / "state").mkdir()
    monkeypatch.setattr(stack, "PROJECT", tmp_path)
    monkeypatch.setattr(stack, "program_folder", lambda: tmp_path)
    monkeypatch.setattr(stack_files, "STATE", tmp_path)
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path / 'state'}")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "ours")
    return tmp_path


def state_of(project: Path, name: str) -> Path:
    """Return the state file of a stack."""
    return project / "state" / ".pulumi" / "stacks" / "several" / f"{name}.json"


def test_ensure_stack_with_the_salt_of_another_checkout_raises_with_file_and_key(project: Path) -> None:
    (project / "Pulumi.mine.yaml").write_text(SALT_LINE + "\n", encoding="utf-8")
    with pytest.raises(
        stack.PulumiFailed, match=r"Pulumi\.mine\.yaml: its `encryptionsalt` was written with another passphrase"
    ):
        stack.ensure_stack("mine")


def test_ensure_stack_restores_settings_file_and_config_set_changes_it(project: Path) -> None:
    text = "# Ours.\nconfig:\n  several:budget: 20\n  several:ttl_hours: 1.50\n  several:platform: {nodes: 2}\n"
    settings = project / "Pulumi.mine.yaml"
    settings.write_text(text, encoding="utf-8")
    stack.ensure_stack("mine")
    assert settings.read_text(encoding="utf-8") == text
    stack.pulumi("config", "set", "several:budget", "30", "--stack", "mine", quiet=True)
    assert "30" in settings.read_text(encoding="utf-8"), "an explicit change must stay"


def test_kubeconfig_of_cloud_stack_can_be_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig = "apiVersion: v1"
    monkeypatch.setattr(stack, "PROJECT", tmp_path)
    monkeypatch.setattr(stack, "pulumi", lambda *_words, **_options: kubeconfig)
    found = {"kubeconfig_path": ".trainyard/gke.kubeconfig"}
    path = tmp_path / ".trainyard" / "gke.kubeconfig"
    assert stack.kubeconfig_of("dev", found) == str(path)
    assert path.read_text(encoding="utf-8") == "apiVersion: v1"
    assert path.stat().st_mode & 0o777 == 0o600
    kubeconfig = "apiVersion: v1  # of a new cluster"
    stack.renew_kubeconfig("dev", found)
    assert path.read_text(encoding="utf-8") == kubeconfig


@pytest.mark.parametrize("path", ["", "/clusters/local/admin.kubeconfig", "/one:/two"])
def test_kubeconfig_of_other_paths_returns_the_paths_unchanged(path: str) -> None:
    assert stack.kubeconfig_of("local", {"kubeconfig_path": path}) == path


def test_stack_exists_on_a_shared_backend_without_the_cli_sets_up_first(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Sequence[str]] = []

    def run_child(words: Sequence[str], **_: object) -> Child:
        ran.append(words)
        is_set_up = "-m" in words
        return Child(
            status=0 if is_set_up else 255,
            stdout="",
            stderr="" if is_set_up else "error: no stack named 'dev' found",
            is_stopped=False,
        )

    monkeypatch.setattr(stack, "has_cli", lambda: False)
    monkeypatch.setattr(stack, "run_child", run_child)
    monkeypatch.setattr(interrupts, "run_child", run_child)
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://shared")
    assert not stack.stack_exists("dev")
    assert [words[1:] for words in ran] == [["-m", "setup", "--no-cluster"], ["stack", "export", "--stack", "dev"]]


def test_stack_exists_after_a_failed_set_up_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "has_cli", lambda: False)
    monkeypatch.setattr(stack, "run_set_up", lambda *_, **__: 1)
    monkeypatch.setenv("PULUMI_BACKEND_URL", "s3://shared")
    with pytest.raises(stack.PulumiFailed, match="set-up did not install it"):
        stack.stack_exists("dev")


def test_pulumi_uses_separate_provider_folders_and_removes_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    seen: list[Path] = []

    def run_child(_words: Sequence[str], *, env: dict[str, str], **_: object) -> Child:
        seen.append(Path(env[PROVIDER_TMPDIR]))
        assert seen[-1].is_dir()
        (seen[-1] / "kubeconfig1").touch()
        return Child(status=0, stdout="", stderr="", is_stopped=False)

    monkeypatch.setattr(stack, "run_child", run_child)
    monkeypatch.setattr(stack, "PROVIDER_FILES", tmp_path)
    for _ in range(2):
        stack.pulumi("preview", "--stack", "dev")
    assert len(set(seen)) == 2
    assert all(folder.parent == tmp_path / "dev" for folder in seen)
    assert list(tmp_path.iterdir()) == []


def test_remove_provider_files_after_a_kill_leaves_other_stacks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(stack, "PROVIDER_FILES", tmp_path)
    for name in ("dev", "other"):
        (tmp_path / name / "run").mkdir(parents=True)
        (tmp_path / name / "run" / "kubeconfig1").touch()
    stack.remove_provider_files("dev")
    assert [folder.name for folder in tmp_path.iterdir()] == ["other"]


@pytest.mark.parametrize("text", ["", '{"version": 3, "checkpoint": {"sta'])
def test_ensure_stack_ignores_the_damaged_state_of_another_stack(project: Path, text: str) -> None:
    stack.ensure_stack("one")
    state_of(project, "one").write_text(text, encoding="utf-8")
    stack.ensure_stack("two")
    assert stack.stack_exists("two")
    assert stack.outputs("two") == {}
    stack.recover("two")


def test_outputs_of_a_damaged_state_come_from_its_backup(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stack.ensure_stack("one")
    state = state_of(project, "one")
    state.write_text("", encoding="utf-8")
    assert stack.outputs("one") == {}
    assert "stack one: one.json was damaged; using the state before the last write" in capsys.readouterr().out


def test_recover_of_a_damaged_state_without_a_copy_raises(project: Path) -> None:
    stack.ensure_stack("one")
    state_of(project, "one").write_text("", encoding="utf-8")
    Path(f"{state_of(project, 'one')}.bak").unlink()
    with pytest.raises(StateBroken, match=r"one\.json is damaged and has no intact copy"):
        stack.recover("one")


def test_pulumi_on_a_stack_locked_by_another_machine_names_the_owner_of_the_lock(project: Path) -> None:
    stack.ensure_stack("one")
    locks = project / "state" / ".pulumi" / "locks" / "organization" / "several" / "one"
    locks.mkdir(parents=True, exist_ok=True)
    owner = {"pid": 7, "username": "ann", "hostname": "elsewhere", "timestamp": "2026-11-24T10:00:00Z"}
    (locks / "a.json").write_text(json.dumps(owner), encoding="utf-8")
    with pytest.raises(StackBusy, match="of ann on elsewhere; wait until it ends; if it is certainly dead"):
        stack.pulumi("refresh", "--yes", "--stack", "one")


@pytest.fixture
def settings(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the valid settings file of stack `mine`, which `trainyard config` changes."""
    monkeypatch.setattr(stack_settings, "PROJECT", project)
    monkeypatch.setattr(stack_settings, "program_folder", lambda: project)
    monkeypatch.setattr(stack_settings, "settings_without_salt", nullcontext)
    monkeypatch.setattr(stack_settings, "stack_environment", lambda: dict(os.environ))
    monkeypatch.setenv("STACK", "mine")
    file = project / "Pulumi.mine.yaml"
    jobs = "  trainyard:jobs:\n  - {name: digits, recipe: digits, hosts: 1}\n"
    file.write_text(f"config:\n  trainyard:platform: {{kind: local}}\n{jobs}", encoding="utf-8")
    return file


def test_config_set_of_an_invalid_value_is_rejected_and_changes_nothing(settings: Path) -> None:
    before = settings.read_text(encoding="utf-8")
    for key, value in (("hots", "3"), ("hosts", "-3")):
        with pytest.raises(stack_settings.InvalidSetting, match=rf"(?s)jobs\[0\]\.{key}.*is unchanged") as raised:
            stack_settings.pulumi_config(["set", "--path", f"trainyard:jobs[0].{key}", value])
        assert raised.value.status == 2
        assert settings.read_text(encoding="utf-8") == before


@pytest.mark.usefixtures("settings")
def test_config_rm_of_a_required_key_prints_the_problem(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["rm", "--path", "trainyard:jobs[0].recipe"]
    assert stack_settings.pulumi_config(words) == 0
    assert capsys.readouterr().err.startswith("Pulumi.mine.yaml: 1 problem\n")
    with pytest.raises(stack_settings.InvalidSetting, match="has no such key: --path trainyard:jobs"):
        stack_settings.pulumi_config(words)


def test_config_set_in_invalid_settings_accepts_an_invalid_value_and_its_correction(
    settings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stack_settings.pulumi_config(["rm", "--path", "trainyard:jobs[0].recipe"]) == 0
    assert stack_settings.pulumi_config(["set", "--path", "trainyard:jobs[0].hosts", "-3"]) == 0
    assert "hosts: -3" in settings.read_text(encoding="utf-8")
    assert "jobs[0].hosts" in capsys.readouterr().err
    assert stack_settings.pulumi_config(["set", "--path", "trainyard:jobs[0].hosts", "2"]) == 0
    assert capsys.readouterr().err.startswith("Pulumi.mine.yaml: 1 problem\n")
    assert stack_settings.pulumi_config(["set", "--path", "trainyard:jobs[0].recipe", "digits"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("write /a/b.json: no space left on device", "/a/b.json: No space left on device; free some disk space"),
        ("write /a/b.json: disk quota exceeded", "/a/b.json: Disk quota exceeded; free some of your disk quota"),
        ("An IO error occurred: no space left on device", f"{PROJECT}: No space left on device; free some"),
        ("another error", ""),
    ],
)
def test_explain_full_disk_names_the_path_and_the_remedy(text: str, expected: str) -> None:
    found = stack.explain_full_disk(text)
    assert found.startswith(expected)
    assert bool(found) == bool(expected)


def test_explain_full_disk_without_output_measures_the_free_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "FULL_DISK_BYTES", 1 << 62)
    assert stack.explain_full_disk("").startswith(f"{PROJECT}: No space left on device; free some disk space")


def test_pulumi_with_a_failed_json_preview_shows_the_error_of_the_program(project: Path) -> None:
    (project / "__main__.py").write_text("raise ValueError('this machine has no login')\n", encoding="utf-8")
    stack.ensure_stack("mine")
    with pytest.raises(stack.PulumiFailed) as raised:
        stack.pulumi("preview", "--json", "--stack", "mine", quiet=True)
    heading, *reasons = str(raised.value).splitlines()
    assert heading == "`pulumi preview --json --stack mine` failed with 1:"
    assert "this machine has no login" in "\n".join(reasons)


@pytest.mark.parametrize("words", [["set"], ["get"], ["rm"], ["set", "--path"]])
def test_config_without_a_key_is_a_usage_error_with_an_example(words: list[str]) -> None:
    with pytest.raises(stack_settings.InvalidSetting, match=rf"`trainyard config {words[0]} --path ") as raised:
        stack_settings.pulumi_config(words)
    assert raised.value.status == 2


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["set", "--secret", "secrets:wandb"], ""),
        (["set", "secrets:wandb", "--secret"], "\n"),
        (["set", "--secret", "--type", "string", "secrets:wandb"], ""),
        (["set", "--secret", "secrets:wandb", ""], "unread"),
    ],
    ids=["no input", "empty line", "option with a value", "empty argument"],
)
def test_config_set_rejects_an_empty_secret(words: list[str], text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    with pytest.raises(stack_settings.InvalidSetting, match="the value of secrets:wandb is empty") as raised:
        stack_settings.pulumi_config(words)
    assert raised.value.status == 2


def test_config_set_passes_a_secret_from_standard_input_to_pulumi(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Pulumi.mine.yaml").write_text(
        "config:\n  trainyard:platform: {kind: local}\n  trainyard:jobs: []\n", encoding="utf-8"
    )
    calls: list[tuple[list[str], Any]] = []

    def run(words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        calls.append((words, options["input"]))
        return subprocess.CompletedProcess(words, 0)

    monkeypatch.setattr(sys, "stdin", io.StringIO("hunter2\n"))
    monkeypatch.setattr(stack_settings, "PROJECT", tmp_path)
    monkeypatch.setattr(stack_settings, "program_folder", lambda: tmp_path)
    monkeypatch.setattr(stack_settings, "ensure_stack", lambda _stack: None)
    monkeypatch.setattr(stack_settings, "settings_without_salt", nullcontext)
    monkeypatch.setattr(stack_settings, "stack_environment", dict)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("STACK", "mine")
    assert stack_settings.pulumi_config(["set", "--secret", "secrets:wandb"]) == 0
    words = ["pulumi", "config", "set", "--secret", "secrets:wandb", "--stack", "mine", "--"]
    assert calls == [(words, "hunter2\n")]
