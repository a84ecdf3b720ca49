"""Set-up steps of a stack: selection, order, builds of programs without a release, and signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import setup
from setup import __main__ as program
from setup import go_programs, releases
from setup.progress import Step
from setup.steps import DEBIAN_STEP, DIGITS_STEP, RUNTIME_STEP, SOTU_STEP, rehearsal_steps, steps
from tests.setup.servers import file_server, serving


def names(found: list[Step]) -> list[str]:
    """Return the names of steps."""
    return [each.name for each in found]


@pytest.mark.parametrize("image", [True, False])
def test_steps_of_a_stack_that_builds_an_image_include_its_data(image: bool) -> None:
    for found in (rehearsal_steps(frozenset(), "eks", image=image), steps(cluster=False, image=image)):
        assert {DIGITS_STEP, SOTU_STEP} & set(names(found)) == ({DIGITS_STEP, SOTU_STEP} if image else set())


def test_steps_of_a_local_cluster_get_the_data_before_the_trainer_image() -> None:
    found = names(steps(cluster=True))
    assert max(found.index(DIGITS_STEP), found.index(SOTU_STEP)) < found.index("trainer image")


def test_trainer_image_step_waits_only_for_its_data_and_the_container_runtime() -> None:
    found = {each.name: each for each in steps(cluster=True)}
    assert found["trainer image"].after == [DEBIAN_STEP, DIGITS_STEP, SOTU_STEP, RUNTIME_STEP]
    assert found[DIGITS_STEP].after == [DEBIAN_STEP]
    assert found[SOTU_STEP].after == [DIGITS_STEP], "one step must wait for the other, because both may install npm"
    assert set(found) >= {DEBIAN_STEP, RUNTIME_STEP}


def test_container_runtime_step_follows_the_debian_packages() -> None:
    found = names(steps(cluster=True))
    assert found.index(RUNTIME_STEP) == found.index(DEBIAN_STEP) + 1


@pytest.fixture
def built_modules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Yield the modules that set-up builds. The servers of all releases answer 404."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr("setup.steps.missing_packages", lambda **_options: [])
    modules: list[str] = []
    monkeypatch.setattr(go_programs, "build_all", lambda programs: modules.extend(each.module for each in programs))
    with serving(file_server(tmp_path / "empty")) as url:

        def absent(*_versions: str) -> list[releases.Release]:
            return [releases.Release(url=f"{url}/file", checksums=f"{url}/sums", listed_as="file", members={})]

        monkeypatch.setattr(releases, "runtime_releases", absent)
        monkeypatch.setattr(releases, "kubernetes_releases", absent)
        yield modules


def test_unreleased_programs_are_built_and_reported_once(built_modules: list[str]) -> None:
    found = {each.name: each for each in steps(cluster=True)}
    lines: list[str] = []
    found[RUNTIME_STEP].do(lines.append)
    next(each for name, each in found.items() if name.startswith("Kubernetes")).do(lines.append)
    assert built_modules == ["containerd", "containerd-shim", "runc", "kubernetes"]
    (line,) = lines
    assert line.startswith("no official release (http://127.0.0.1")
    assert "building from Go modules" in line


def test_steps_of_a_stack_without_local_nodes_build_no_container_runtime() -> None:
    assert RUNTIME_STEP not in names(steps(cluster=False))
    assert RUNTIME_STEP not in names(rehearsal_steps(frozenset(), "gke"))


@pytest.mark.parametrize(
    "error",
    [
        subprocess.CalledProcessError(2, ["uv", "pip", "sync"]),
        OSError(28, "No space left on device"),
        RuntimeError("no Go"),
        ValueError("10 images"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_main_after_a_failed_step_prints_the_error_and_returns_1(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_steps: list[Step]) -> None:
        raise error

    monkeypatch.setattr(sys, "argv", ["setup", "--no-cluster"])
    monkeypatch.setattr(program, "end_children_on_signals", lambda: None)
    monkeypatch.setattr(program, "run_steps", fail)
    assert program.main() == 1
    assert capsys.readouterr().err == f"set-up stopped: {error}\n"


@pytest.mark.parametrize("second", [signal.SIGALRM, signal.SIGINT])
@pytest.mark.parametrize(("first", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_set_up_that_does_not_end_in_time_exits_with_the_status_of_the_first_signal(
    first: int, status: int, second: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    handlers: dict[int, Any] = {}
    exits: list[int] = []
    monkeypatch.setattr(signal, "getsignal", handlers.get)
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    monkeypatch.setattr(signal, "alarm", lambda _seconds: 0)
    monkeypatch.setattr(setup, "descendants", lambda _pid: [])
    monkeypatch.setattr(os, "_exit", exits.append)
    setup.end_children_on_signals()
    with pytest.raises(SystemExit) as raised:
        handlers[first](first, None)
    assert raised.value.code == status
    handlers[second](second, None)
    assert exits == [status]
