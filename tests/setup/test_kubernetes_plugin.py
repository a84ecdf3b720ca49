"""Pulumi home with the built Kubernetes plugin, and the version that Pulumi requires."""

from __future__ import annotations

import re
from importlib import metadata
from pathlib import Path

import pytest

from commands import environment
from setup import pulumi_cli
from setup.pulumi_cli import (
    BUILT_PLUGIN_HOME,
    KUBERNETES_PLUGIN,
    KUBERNETES_PLUGIN_NAME,
    KUBERNETES_PLUGIN_VERSION,
    home_with_build,
)

PLUGIN = Path("plugins", f"resource-kubernetes-v{KUBERNETES_PLUGIN_VERSION}", KUBERNETES_PLUGIN_NAME)
ROOT = Path(__file__).resolve().parents[2]


def program(path: Path) -> Path:
    """Create an executable file. Return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(0o755)
    return path


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate a user with an empty home and no programs on PATH. Return the folder that contains the home."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("PULUMI_HOME", "PULUMI_CREDENTIALS_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_plugin_version_equals_the_python_package() -> None:
    # Pulumi accepts no other version of the plugin.
    assert metadata.version("pulumi-kubernetes") == KUBERNETES_PLUGIN_VERSION


def test_go_module_is_the_commit_of_the_plugin_version() -> None:
    pinned = (ROOT / "setup" / "go" / "pulumi-kubernetes" / "go.mod").read_text(encoding="ascii")
    # git rev-parse v4.25.0 in https://github.com/pulumi/pulumi-kubernetes
    assert re.findall(rf"{re.escape(pulumi_cli.KUBERNETES_PLUGIN_MODULE)} (\S+)", pinned) == [
        "v4.0.0-20260115033456-f47bc2d6f199"
    ]
    assert KUBERNETES_PLUGIN_VERSION == "4.25.0"


def test_built_plugin_is_in_the_home_of_the_checkout_only(bare_machine: Path) -> None:
    program(KUBERNETES_PLUGIN.folder / KUBERNETES_PLUGIN_NAME)
    home = home_with_build(bare_machine / "checkout")
    assert home == (bare_machine / "checkout").joinpath(*BUILT_PLUGIN_HOME)
    assert (home / PLUGIN).samefile(KUBERNETES_PLUGIN.folder / KUBERNETES_PLUGIN_NAME)
    assert not (home / PLUGIN).parent.is_symlink()
    assert not (bare_machine / "home").exists()


def test_home_of_the_checkout_has_other_plugins_of_the_user(bare_machine: Path) -> None:
    program(KUBERNETES_PLUGIN.folder / KUBERNETES_PLUGIN_NAME)
    plugin = program(bare_machine / "home" / ".pulumi" / "plugins" / "resource-gcp-v1.0.0" / "pulumi-resource-gcp")
    home = home_with_build(bare_machine)
    assert home
    assert (home / "plugins" / "resource-gcp-v1.0.0" / "pulumi-resource-gcp").samefile(plugin)


@pytest.mark.parametrize("path", ["bin/pulumi-resource-kubernetes", f"home/.pulumi/{PLUGIN}"])
def test_plugin_of_the_user_takes_precedence(bare_machine: Path, path: str) -> None:
    program(KUBERNETES_PLUGIN.folder / KUBERNETES_PLUGIN_NAME)
    program(bare_machine / path)
    assert home_with_build(bare_machine) is None


def test_plugin_of_another_version_does_not_take_precedence(bare_machine: Path) -> None:
    program(KUBERNETES_PLUGIN.folder / KUBERNETES_PLUGIN_NAME)
    program(bare_machine / "home" / ".pulumi" / "plugins" / "resource-kubernetes-v4.0.0" / KUBERNETES_PLUGIN_NAME)
    assert home_with_build(bare_machine)


def test_shell_of_the_checkout_keeps_its_home(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(KUBERNETES_PLUGIN.folder / KUBERNETES_PLUGIN_NAME)
    home = home_with_build(bare_machine)
    monkeypatch.setenv("PULUMI_HOME", str(home))
    assert home_with_build(bare_machine) == home
    assert pulumi_cli.credentials_folder() is None


def test_credentials_of_the_user_stay_in_use(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "PROJECT", bare_machine)
    program(KUBERNETES_PLUGIN.folder / KUBERNETES_PLUGIN_NAME)
    assert "PULUMI_CREDENTIALS_PATH" not in environment.stack_environment()
    program(bare_machine / "home" / ".pulumi" / "credentials.json")
    found = environment.stack_environment()
    assert found["PULUMI_CREDENTIALS_PATH"] == str(bare_machine / "home" / ".pulumi")
    assert Path(found["PULUMI_HOME"]).parts[-2:] == BUILT_PLUGIN_HOME
