"""A stack is made with the real CLI: where it cannot be, people read what to do."""

from __future__ import annotations

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
