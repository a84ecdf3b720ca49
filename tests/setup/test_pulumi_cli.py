"""Which Pulumi and which plugins a stack gets: the machine's own win, stand-ins come last."""

from __future__ import annotations

from pathlib import Path

import pytest

from setup import pulumi_cli


def program(folder: Path, name: str) -> Path:
    """An executable file."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n", encoding="ascii")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with empty caches and nothing on PATH."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "pulumi"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def stand_ins() -> set[str]:
    """Names of the stand-ins that a stack would get."""
    return set(pulumi_cli.missing_plugins())


@pytest.mark.usefixtures("bare")
def test_a_bare_machine_gets_every_stand_in() -> None:
    assert not pulumi_cli.has_cli()
    assert stand_ins() == {"language", "dynamic", "kubernetes"}


def test_a_plugin_on_path_wins(bare: Path) -> None:
    program(bare / "bin", "pulumi-resource-kubernetes")
    assert stand_ins() == {"language", "dynamic"}


def test_a_plugin_that_pulumi_installed_wins(bare: Path) -> None:
    program(bare / "pulumi" / "plugins" / "resource-kubernetes-v4.34.2", "pulumi-resource-kubernetes")
    assert stand_ins() == {"language", "dynamic"}


@pytest.mark.usefixtures("bare")
def test_the_release_brings_its_own_hosts() -> None:
    for name in ("pulumi", "pulumi-language-python", "pulumi-resource-pulumi-python"):
        program(pulumi_cli.release_folder(), name)
    assert pulumi_cli.has_cli()
    assert pulumi_cli.cli_folders() == [pulumi_cli.release_folder()]
    assert stand_ins() == {"kubernetes"}


def test_a_cli_on_path_wins_over_ours(bare: Path) -> None:
    program(pulumi_cli.release_folder(), "pulumi")
    program(bare / "bin", "pulumi")
    assert pulumi_cli.cli_folders() == []


def test_a_built_cli_has_the_hosts_beside_it_that_a_release_has(bare: Path) -> None:
    program(pulumi_cli.BUILT.folder, "pulumi")
    cli = bare / "checkout" / ".trainyard" / "cli"
    assert pulumi_cli.path_folders(bare / "checkout") == ([cli], [pulumi_cli.STAND_INS / "kubernetes"])
    assert (cli / "pulumi").samefile(pulumi_cli.BUILT.folder / "pulumi")
    assert (cli / "pulumi-language-python").resolve().is_relative_to(pulumi_cli.STAND_INS)
    program(bare / "bin", "pulumi-language-python")
    pulumi_cli.path_folders(bare / "checkout")
    assert {path.name for path in cli.iterdir()} == {"pulumi", "pulumi-resource-pulumi-python"}


def test_a_cli_that_is_built_anew_takes_the_old_ones_place(bare: Path) -> None:
    for content in ("old", "new"):
        built = program(pulumi_cli.BUILT.folder, "pulumi")
        draft = built.with_name("draft")
        draft.write_text(content, encoding="ascii")
        draft.replace(built)
        ((cli,), _) = pulumi_cli.path_folders(bare)
        assert (cli / "pulumi").read_text(encoding="ascii") == content


def test_the_shell_of_a_checkout_has_the_same_cli(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(pulumi_cli.BUILT.folder, "pulumi")
    folders = pulumi_cli.path_folders(bare)
    monkeypatch.setenv("PATH", ":".join(str(folder) for side in folders for folder in side))
    assert pulumi_cli.path_folders(bare) == folders


@pytest.mark.usefixtures("bare")
def test_a_stand_in_on_path_is_no_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(pulumi_cli.STAND_INS / "kubernetes"))
    assert "kubernetes" in stand_ins()


@pytest.mark.usefixtures("bare")
def test_a_release_with_another_digest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import io
    import urllib.request

    monkeypatch.setattr("socket.getaddrinfo", lambda *_: [])
    monkeypatch.setattr(urllib.request, "urlopen", lambda *_args, **_named: io.BytesIO(b"not the release"))
    with pytest.raises(ValueError, match="has SHA-256"):
        pulumi_cli.fetch_release()
    assert not pulumi_cli.release_folder().exists()
