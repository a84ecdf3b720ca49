"""Debian packages that set-up installs: packages of missing programs, and a C compiler only on request.

An installation starts no services: it writes a policy-rc.d file, which a killed installation does not leave behind.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from setup import steps
from setup.steps import C_PACKAGES, DEBIAN_STEP, PACKAGES, missing_packages


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only folder on PATH. It is empty."""
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("programs")
def test_missing_packages_on_an_empty_path_are_all_and_the_compiler_only_on_request() -> None:
    assert set(missing_packages()) >= {*PACKAGES.values(), "buildah"}
    assert not {*C_PACKAGES.values()} & set(missing_packages())
    assert set(missing_packages(compiler=True)) >= {*missing_packages(), *C_PACKAGES.values()}


def test_missing_packages_with_programs_names_none_of_their_packages(programs: Path) -> None:
    for name in (*PACKAGES, *C_PACKAGES, "buildah"):
        (programs / name).touch(mode=0o755)
    assert not {*PACKAGES.values(), *C_PACKAGES.values(), "buildah"} & set(missing_packages(compiler=True))


@pytest.fixture
def policy_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the policy-rc.d file, which does not exist."""
    path = tmp_path / "policy-rc.d"
    monkeypatch.setattr(steps, "POLICY_FILE", path)
    monkeypatch.setattr(steps, "missing_packages", lambda: [])
    return path


def is_debian_step_done() -> bool:
    """Return True if set-up skips the installation of packages."""
    (step,) = [each for each in steps.steps(cluster=True) if each.name == DEBIAN_STEP]
    return step.is_done()


def test_policy_of_a_killed_installation_is_removed_by_the_next_installation(policy_file: Path) -> None:
    assert is_debian_step_done()
    if (process := os.fork()) == 0:
        with steps._without_services():
            os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(process, 0)
    assert policy_file.exists()
    assert not is_debian_step_done()
    with steps._without_services():
        assert policy_file.stat().st_mode & 0o777 == 0o755
    assert not policy_file.exists()
    assert is_debian_step_done()


def test_policy_of_the_user_stays(policy_file: Path) -> None:
    policy_file.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
    with steps._without_services():
        pass
    assert policy_file.read_text(encoding="ascii") == "#!/bin/sh\nexit 101\n"
    assert is_debian_step_done()
