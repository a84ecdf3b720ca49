"""Builds of Go programs with a fake compiler: one standard library for all, removal of object files, tags, memory."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

import pytest

from infra.local.settings import cache_folder
from infra.make_command import COMMAND_VARIABLE
from setup.go_programs import MODULES, EmbeddedFiles, GoProgram, build_all, remove_objects, uv

COMPILER = """#!/bin/sh
if [ "$1" = version ]; then echo go version go1.26.8 linux/amd64; exit; fi
if [ "$1" = mod ]; then exit; fi
if [ "$1" = list ]; then echo "/modules/$5"; exit; fi
for word in "$@"; do [ "$before" != -overlay ] || cp "$word" "$CALLS.overlay"; before=$word; done
echo "$*" >> "$CALLS"
mkdir -p "$GOCACHE"
for word in "$@"; do last=$word; [ "$before" != -o ] || result=$word; before=$word; done
echo "$CGO_ENABLED" >> "$CALLS.cgo"
if [ "$last" = std ]; then echo compiled > "$GOCACHE/std"; exit "${STATUS:-0}"; fi
[ -e "$GOCACHE/std" ] || exit 1
echo "$GOGC $GOMEMLIMIT" > "$result"
"""
PROGRAMS = [GoProgram(module=name, package=".", binary=name) for name in ("pause", "kubernetes")]


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file with the calls of a fake compiler. The cache is empty."""
    program = tmp_path / "bin" / "go"
    program.parent.mkdir()
    program.write_text(COMPILER, encoding="ascii")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    return tmp_path / "calls"


def test_standard_library_is_compiled_once_for_all_programs(calls: Path) -> None:
    for program in PROGRAMS:
        build_all([program])
    assert [line.split()[-1] for line in calls.read_text().splitlines()] == ["std", ".", "."]
    assert all(program.is_built() for program in PROGRAMS)


@pytest.mark.usefixtures("calls")
def test_remove_objects_keeps_programs_and_standard_library() -> None:
    for program in PROGRAMS:
        build_all([program])
        assert (cache_folder() / "go-build" / "objects").is_dir()
    remove_objects()
    [kept] = [each.name for each in cache_folder().iterdir() if each.name not in ("bin", "go-build.lock")]
    assert kept.startswith("go-std-")


@pytest.mark.usefixtures("calls")
def test_remove_objects_while_another_process_builds_removes_nothing() -> None:
    build_all(PROGRAMS)
    with (cache_folder() / "go-build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        remove_objects()
    assert (cache_folder() / "go-build").is_dir()


def test_embedded_files_of_another_module_are_overlaid_on_the_main_package(calls: Path) -> None:
    files = EmbeddedFiles(module="example.com/m", folder="cmd/x", names=("a.json", "b.json"))
    program = GoProgram(module="pause", package=".", binary="pause", embedded=files)
    build_all([program])
    overlay = json.loads(calls.with_name("calls.overlay").read_text())
    folder = MODULES / "pause"
    assert overlay == {
        "Replace": {
            str(folder / "a.json"): "/modules/example.com/m/cmd/x/a.json",
            str(folder / "b.json"): "/modules/example.com/m/cmd/x/b.json",
        }
    }
    assert program.sources_digest != PROGRAMS[0].sources_digest


def test_standard_library_of_a_failed_build_is_compiled_again(calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATUS", "1")
    with pytest.raises(RuntimeError, match="building Go's standard library failed"):
        build_all(PROGRAMS)
    monkeypatch.delenv("STATUS")
    build_all(PROGRAMS)
    assert [line.split()[-1] for line in calls.read_text().splitlines()] == ["std", "std", ".", "."]


def test_program_with_parts_in_c_is_compiled_with_cgo_and_its_tags(calls: Path) -> None:
    build_all([*PROGRAMS[:1], GoProgram(module="runc", package=".", binary="runc", c_tags=["seccomp", "other"])])
    assert Path(f"{calls}.cgo").read_text().split() == ["0", "0", "1"]
    _, without, with_c = calls.read_text().splitlines()
    assert "-tags" not in without
    assert "-tags seccomp,other " in with_c


def test_digest_of_sources_depends_on_tags() -> None:
    before, after = (GoProgram(module="runc", package=".", binary="runc", c_tags=tags) for tags in ((), ("seccomp",)))
    assert before.sources_digest != after.sources_digest


@pytest.mark.usefixtures("calls")
@pytest.mark.parametrize(("gigabytes", "processors", "mebibytes"), [(24, 2, 2600), (16, 16, 512), (4, 4, 512)])
def test_concurrent_compilers_leave_half_of_the_memory(
    gigabytes: int, processors: int, mebibytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = {"SC_PHYS_PAGES": gigabytes << 18, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", pages.__getitem__)
    monkeypatch.setattr(os, "cpu_count", lambda: processors)
    build_all(PROGRAMS[:1])
    program = PROGRAMS[0].folder / PROGRAMS[0].binary
    assert program.read_text() == f"off {mebibytes << 20}\n"


@pytest.mark.parametrize("program", ["make", "trainyard"])
def test_missing_uv_names_the_setup_command_of_the_program(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(COMMAND_VARIABLE, program if program != "make" else "")
    with pytest.raises(RuntimeError, match=f"^uv is missing; run `{program} setup`$"):
        uv()
