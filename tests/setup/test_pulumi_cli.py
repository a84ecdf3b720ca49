"""Pulumi CLI and its hosts for Python programs and dynamic providers: from PATH, else installed, else stand-ins."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from http.server import HTTPServer
from pathlib import Path

import pytest

from setup import pulumi_cli
from setup.go_programs import GoProgram
from setup.releases import DownloadError, Downloads
from tests.setup.servers import Quiet, serving


def program(folder: Path, name: str, text: str = "#!/bin/sh\n") -> Path:
    """Write an executable file. Return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(text, encoding="ascii")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate a machine with empty caches and no programs on PATH. Return the folder that contains the caches."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "pulumi"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.mark.usefixtures("bare_machine")
def test_hosts_on_a_bare_machine_are_stand_ins() -> None:
    assert not pulumi_cli.has_cli()
    assert pulumi_cli.missing_hosts() == ["language", "dynamic"]


def test_host_on_path_takes_precedence(bare_machine: Path) -> None:
    program(bare_machine / "bin", "pulumi-language-python")
    assert pulumi_cli.missing_hosts() == ["dynamic"]


@pytest.mark.usefixtures("bare_machine")
def test_release_has_its_own_hosts() -> None:
    for name in ("pulumi", "pulumi-language-python", "pulumi-resource-pulumi-python"):
        program(pulumi_cli.release_folder(), name)
    assert pulumi_cli.has_cli()
    assert pulumi_cli.cli_folders() == [pulumi_cli.release_folder()]
    assert pulumi_cli.missing_hosts() == []


def test_cli_on_path_takes_precedence_over_an_installed_cli(bare_machine: Path) -> None:
    program(pulumi_cli.release_folder(), "pulumi")
    program(bare_machine / "bin", "pulumi")
    assert pulumi_cli.cli_folders() == []
    hosts = [pulumi_cli.STAND_INS / "language", pulumi_cli.STAND_INS / "dynamic"]
    assert pulumi_cli.path_folders(bare_machine) == ([], hosts)


def test_built_cli_has_the_hosts_of_a_release_next_to_it(bare_machine: Path) -> None:
    program(pulumi_cli.BUILT_CLI.folder, "pulumi")
    cli = bare_machine / "checkout" / ".trainyard" / "cli"
    assert pulumi_cli.path_folders(bare_machine / "checkout") == ([cli], [])
    assert (cli / "pulumi").samefile(pulumi_cli.BUILT_CLI.folder / "pulumi")
    assert (cli / "pulumi-language-python").resolve().is_relative_to(pulumi_cli.STAND_INS)
    program(bare_machine / "bin", "pulumi-language-python")
    pulumi_cli.path_folders(bare_machine / "checkout")
    assert {path.name for path in cli.iterdir()} == {"pulumi", "pulumi-resource-pulumi-python"}


def test_path_folders_replaces_an_older_cli(bare_machine: Path) -> None:
    for content in ("old", "new"):
        built = program(pulumi_cli.BUILT_CLI.folder, "pulumi")
        draft = built.with_name("draft")
        draft.write_text(content, encoding="ascii")
        draft.replace(built)
        ((cli,), _) = pulumi_cli.path_folders(bare_machine)
        assert (cli / "pulumi").read_text(encoding="ascii") == content


def test_shell_of_a_checkout_has_the_same_cli(bare_machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(pulumi_cli.BUILT_CLI.folder, "pulumi")
    folders = pulumi_cli.path_folders(bare_machine)
    monkeypatch.setenv("PATH", ":".join(str(folder) for side in folders for folder in side))
    assert pulumi_cli.path_folders(bare_machine) == folders


@pytest.mark.usefixtures("bare_machine")
def test_stand_in_on_path_is_not_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(pulumi_cli.STAND_INS / "language"))
    assert "language" in pulumi_cli.missing_hosts()


class WrongFile(Quiet):
    """Handler that answers each request with a file that is not the release."""

    def do_GET(self) -> None:
        """Answer one request."""
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"not the release")


@pytest.fixture
def wrong_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replace Pulumi's server with a server that sends other files."""
    with serving(HTTPServer(("127.0.0.1", 0), WrongFile)) as url:
        monkeypatch.setattr(pulumi_cli, "RELEASE_URL", url)
        yield


@pytest.mark.usefixtures("bare_machine", "wrong_server")
def test_release_with_another_digest_is_rejected() -> None:
    with pytest.raises(DownloadError, match="has sha256"):
        pulumi_cli.fetch_release(Downloads())
    assert not pulumi_cli.release_folder().exists()


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return an empty list for progress lines. Builds are instant, and Pulumi's server refuses connections."""

    def build(programs: list[GoProgram]) -> None:
        for each in programs:
            program(each.folder, each.binary)
            (each.folder / "sources").write_text(each.sources_digest, encoding="ascii")

    monkeypatch.setattr(pulumi_cli, "build_all", build)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        monkeypatch.setattr(pulumi_cli, "RELEASE_URL", f"http://127.0.0.1:{closed.getsockname()[1]}")
    return []


@pytest.mark.usefixtures("bare_machine")
def test_get_pulumi_without_downloads_builds_after_one_message(lines: list[str]) -> None:
    assert not pulumi_cli.is_complete()
    pulumi_cli.get_pulumi(Downloads(), lines.append)
    assert pulumi_cli.is_complete()
    [line] = lines
    assert "Connection refused" in line
    assert line.endswith("building from Go modules")


def test_get_pulumi_with_a_cli_on_path_builds_only_the_plugin(bare_machine: Path, lines: list[str]) -> None:
    program(bare_machine / "bin", "pulumi")
    pulumi_cli.get_pulumi(Downloads(), lines.append)
    assert pulumi_cli.KUBERNETES_PLUGIN.is_built()
    assert not pulumi_cli.BUILT_CLI.is_built()


def test_get_pulumi_downloads_the_official_plugin(
    lines: list[str], bare_machine: Path, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("wrong_server")
    folder = bare_machine / "pulumi" / "plugins" / f"resource-kubernetes-v{pulumi_cli.KUBERNETES_PLUGIN_VERSION}"
    install = f'[ "$*" = "plugin install resource kubernetes {pulumi_cli.KUBERNETES_PLUGIN_VERSION}" ] || exit 1\n'
    program(
        bare_machine / "bin",
        "pulumi",
        f"#!/bin/sh\n{install}/bin/mkdir -p {folder} && : > {folder}/{pulumi_cli.KUBERNETES_PLUGIN_NAME}\n",
    )
    pulumi_cli.get_pulumi(Downloads(), lines.append)
    assert pulumi_cli.is_complete()
    assert lines == []
    assert pulumi_cli.home_with_build(bare_machine) is None


def test_get_pulumi_builds_a_plugin_that_fails_to_download(
    lines: list[str], bare_machine: Path, request: pytest.FixtureRequest
) -> None:
    request.getfixturevalue("wrong_server")
    program(bare_machine / "bin", "pulumi", "#!/bin/sh\necho error: 403 >&2\nexit 1\n")
    pulumi_cli.get_pulumi(Downloads(), lines.append)
    [line] = lines
    assert "failed: error: 403): building from Go modules" in line
    assert pulumi_cli.KUBERNETES_PLUGIN.is_built()
