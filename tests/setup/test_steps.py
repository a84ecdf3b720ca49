"""Set-up steps of a machine: the requirements of a stack's builds exist before they start."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from setup import go_programs, releases
from setup.progress import Step
from setup.steps import DEBIAN, DIGITS, RUNTIME_STEP, SOTU, rehearsal_steps, steps


def names(found: list[Step]) -> list[str]:
    """Return the steps as text."""
    return [each.name for each in found]


@pytest.mark.parametrize("image", [True, False])
def test_steps_of_a_stack_that_builds_an_image_include_its_data(image: bool) -> None:
    for found in (rehearsal_steps(frozenset(), "eks", image=image), steps(cluster=False, image=image)):
        assert {DIGITS, SOTU} & set(names(found)) == ({DIGITS, SOTU} if image else set())


def test_steps_of_a_local_cluster_get_the_data_before_the_trainer_image() -> None:
    found = names(steps(cluster=True))
    assert max(found.index(DIGITS), found.index(SOTU)) < found.index("trainer image")


def test_trainer_image_step_waits_only_for_its_data_and_the_container_runtime() -> None:
    found = {each.name: each for each in steps(cluster=True)}
    assert found["trainer image"].after == [DEBIAN, DIGITS, SOTU, RUNTIME_STEP]
    assert found[DIGITS].after == [DEBIAN]
    assert found[SOTU].after == [DIGITS], "both may install npm"
    assert set(found) >= {DEBIAN, DIGITS, RUNTIME_STEP}


def test_container_runtime_is_the_first_go_program() -> None:
    found = names(steps(cluster=True))
    assert found.index(RUNTIME_STEP) == found.index(DEBIAN) + 1


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Yield the modules that were requested to be built, while the hosts of all releases answer 404."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("setup.steps.missing_packages", lambda **_options: [])
    modules: list[str] = []
    monkeypatch.setattr(go_programs, "build_all", lambda programs: modules.extend(each.module for each in programs))
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"

    def absent(*_versions: str) -> list[releases.Release]:
        return [releases.Release(url=f"{url}/file", checksums=f"{url}/sums", listed_as="file", members={})]

    monkeypatch.setattr(releases, "runtime_releases", absent)
    monkeypatch.setattr(releases, "kubernetes_releases", absent)
    yield modules
    server.shutdown()
    server.server_close()
    thread.join()


def test_unreleased_programs_are_built_and_reported_once(built: list[str]) -> None:
    found = {each.name: each for each in steps(cluster=True)}
    said: list[str] = []
    found[RUNTIME_STEP].do(said.append)
    next(each for name, each in found.items() if name.startswith("Kubernetes")).do(said.append)
    assert built == ["containerd", "containerd-shim", "runc", "kubernetes"]
    (line,) = said
    assert line.startswith("no official release (http://127.0.0.1")
    assert "building from Go modules" in line


def test_steps_of_a_stack_without_local_nodes_build_no_container_runtime() -> None:
    assert RUNTIME_STEP not in names(steps(cluster=False))
    assert RUNTIME_STEP not in names(rehearsal_steps(frozenset(), "gke"))
