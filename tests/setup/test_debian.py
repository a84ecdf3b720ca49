"""Debian packages that set-up installs: packages of missing programs, and a C compiler only on request."""

from __future__ import annotations

from pathlib import Path

import pytest

from setup.steps import C_PACKAGES, PACKAGES, missing_packages


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder on PATH. It is empty."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("programs")
def test_missing_packages_without_programs_names_all_and_the_compiler_on_request() -> None:
    assert set(missing_packages()) >= {*PACKAGES.values(), "buildah"}
    assert not {*C_PACKAGES.values()} & set(missing_packages())
    assert set(missing_packages(compiler=True)) >= {*missing_packages(), *C_PACKAGES.values()}


def test_missing_packages_with_programs_names_none_of_their_packages(programs: Path) -> None:
    for name in (*PACKAGES, *C_PACKAGES, "buildah"):
        (programs / name).touch(mode=0o755)
    assert not {*PACKAGES.values(), *C_PACKAGES.values(), "buildah"} & set(missing_packages(compiler=True))
