"""A stack is made with the real CLI: where it cannot be, people read what to do."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from commands import stack

SALT = "encryptionsalt: v1:wSbwJZDAAIU=:v1:B6IjODyc4eQUgTZv:PyJ4UDF0sutIA6orBHgXRoq9IlMcvw=="
"""Of a passphrase that nobody knows."""


def test_the_salt_of_another_checkout_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: salted\nruntime: python\n", encoding="utf-8")
    (tmp_path / "Pulumi.mine.yaml").write_text(SALT + "\n", encoding="utf-8")
    monkeypatch.setattr(stack, "PROJECT", tmp_path)
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{state}")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "another")
    with pytest.raises(stack.PulumiFailed, match=r"Pulumi\.mine\.yaml: its `encryptionsalt` is of another checkout"):
        stack.ensure_stack("mine")


def test_a_settings_file_is_as_it_was_after_pulumi_wrote_its_salt_and_numbers_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "# Ours.\nconfig:\n  salted:budget: 20\n  salted:ttl_hours: 1.50\n  salted:platform: {nodes: 2}\n"
    settings = tmp_path / "Pulumi.mine.yaml"
    settings.write_text(text, encoding="utf-8")
    (tmp_path / "Pulumi.yaml").write_text("name: salted\nruntime: python\n", encoding="utf-8")
    (tmp_path / "state").mkdir()
    monkeypatch.setattr(stack, "PROJECT", tmp_path)
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path / 'state'}")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "ours")
    stack.ensure_stack("mine")
    assert settings.read_text(encoding="utf-8") == text
    stack.pulumi("config", "set", "salted:budget", "30", "--stack", "mine", quiet=True)
    assert "30" in settings.read_text(encoding="utf-8"), "what was changed on purpose stays"


def test_the_kubeconfig_of_a_cloud_is_written_where_this_checkout_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, ...]] = []

    def pulumi(*words: str, **_: object) -> str:
        asked.append(words)
        return "apiVersion: v1"

    monkeypatch.setattr(stack, "PROJECT", tmp_path)
    monkeypatch.setattr(stack, "pulumi", pulumi)
    found = {"kubeconfig_path": ".trainyard/gke.kubeconfig"}
    path = tmp_path / ".trainyard" / "gke.kubeconfig"
    assert stack.kubeconfig_of("dev", found) == str(path)
    assert path.read_text(encoding="utf-8") == "apiVersion: v1"
    assert path.stat().st_mode & 0o777 == 0o600
    stack.kubeconfig_of("dev", found)
    assert len(asked) == 1


@pytest.mark.parametrize("path", ["", "/clusters/local/admin.kubeconfig", "/one:/two"])
def test_other_kubeconfigs_are_where_they_are(path: str) -> None:
    assert stack.kubeconfig_of("local", {"kubeconfig_path": path}) == path


def test_a_stack_that_others_keep_is_looked_at_after_a_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        ran.append(words)
        return subprocess.CompletedProcess(words, 0, stdout="[]", stderr="")

    monkeypatch.setattr(stack, "has_cli", lambda: False)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///shared")
    assert not stack.stack_exists("dev")
    assert [words[1:] for words in ran] == [["-m", "setup", "--no-cluster"], ["stack", "ls", "--json"]]


def test_a_set_up_that_fails_is_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack, "has_cli", lambda: False)
    monkeypatch.setattr(subprocess, "run", lambda words, **_: subprocess.CompletedProcess(words, 1))
    monkeypatch.setenv("PULUMI_BACKEND_URL", "file:///shared")
    with pytest.raises(stack.PulumiFailed, match="set-up did not get one"):
        stack.stack_exists("dev")
