"""Fixtures of the tests of components and programs: machine, operators' objects, existing cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infra.local import lifecycle
from tests.operator_objects import save_operator_objects


@pytest.fixture(autouse=True)
def _capable_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the check that this machine can run a cluster."""
    monkeypatch.setattr(lifecycle, "check_machine", lambda _settings: [])


@pytest.fixture
def operator_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set a cache folder that has the Kubernetes objects of every operator."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    save_operator_objects()


@pytest.fixture
def existing_cluster(tmp_path: Path) -> dict[str, Any]:
    """Return the settings of an existing cluster."""
    file = tmp_path / "kubeconfig"
    file.write_text("contexts: [{name: mine}]", encoding="utf-8")
    return {"kind": "kubeconfig", "context": "mine", "kubeconfig": str(file), "image": "example.com/trainer:1"}
