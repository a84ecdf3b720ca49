"""Programs built from pinned Go modules (setup/go/*) into the cache, and the Go toolchain that builds them."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra.local.settings import cache_folder
from infra.make_command import make_command

MODULES = Path(__file__).resolve().parent / "go"
OLDEST_GO = (1, 26, 6)
"""Minimum Go version for the builds: the highest version that a go.mod in setup/go requires."""
COMPILER_FLAGS = ("-trimpath", "-gcflags=all=-dwarf=false -l", "-gcflags=std=-dwarf=false")
"""Compiler flags: no debug information, which the linker would drop, and no inlining outside the standard library.

Inlining takes a quarter of a build's time and makes the programs about a sixth faster.
"""
PAUSE_MODULE = "pause"
"""Module without requirements, in which `go build std` compiles the standard library."""
MAX_COMPILER_BYTES = 2600 << 20
"""Maximum memory of one compiler before it collects garbage.

Processor time of the largest package: 45 s with 1.2 GB, 19 s with 2.5 GB, and 16 s with 5 GB.
"""


@dataclass(frozen=True, kw_only=True)
class EmbeddedFiles:
    """Files of a Go module that a main package of Trainyard embeds.

    `//go:embed` reads only files next to the source.
    """

    module: str
    folder: str
    """Folder in the module."""
    names: Sequence[str]

    def write_overlay(self, program: Path, file: Path) -> None:
        """Write the file for `go build -overlay` that adds the files to the folder `program`."""
        _run_go(["mod", "download", self.module], f"downloading {self.module}", program)
        folder = _run_go(["list", "-m", "-f", "{{.Dir}}", self.module], f"locating {self.module}", program).strip()
        found = {str(program / name): str(Path(folder, self.folder, name)) for name in self.names}
        file.write_text(json.dumps({"Replace": found}), encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class GoProgram:
    """Binary of a Go module, and its names."""

    module: str
    """Folder in setup/go."""
    package: str
    """Package to build, as an argument of `go build`."""
    binary: str
    """File name of the binary."""
    flags: Sequence[str] = ()
    """Linker flags."""
    names: Sequence[str] = ()
    """Names of links to the binary, if it dispatches on its name."""
    c_tags: Sequence[str] = ()
    """Build tags of a program that is partly written in C. Its build uses cgo."""
    embedded: EmbeddedFiles | None = None
    """Files of another module that the main package embeds."""

    @property
    def folder(self) -> Path:
        """Folder of the binary and its links."""
        return cache_folder() / "bin" / self.module

    @property
    def sources_digest(self) -> str:
        """Digest of this program's own build options and of the files in its folder of setup/go."""
        digest = hashlib.sha256(repr((self.package, tuple(self.flags), tuple(self.names), *self.c_tags)).encode())
        if self.embedded:
            digest.update(repr(self.embedded).encode())
        for path in sorted((MODULES / self.module).glob("*")):
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()

    def is_built(self) -> bool:
        """Return True if the cache has the programs, built or downloaded, for the current sources."""
        try:
            return (self.folder / "sources").read_text(encoding="ascii") == self.sources_digest
        except FileNotFoundError:
            return False

    def build(self) -> None:
        """Build into a draft folder that replaces the old one only when complete. Called by `build_all`."""
        draft = self._draft()
        words = ["-ldflags", " ".join(["-s", "-w", *self.flags]), "-o", str(draft / self.binary), self.package]
        if self.c_tags:
            words = ["-tags", ",".join(self.c_tags), *words]
        if self.embedded:
            overlay = _work_folder() / f"{self.module}.overlay.json"
            self.embedded.write_overlay(MODULES / self.module, overlay)
            words = ["-overlay", str(overlay), *words]
        _compile(self.binary, self.module, words, cgo=bool(self.c_tags))
        for name in self.names:
            (draft / name).symlink_to(self.binary)
        self._finish(draft)

    def install(self, files: Mapping[str, Path]) -> None:
        """Install released programs instead of building them. `files` maps each program's name to its file."""
        draft = self._draft()
        for name, file in files.items():
            shutil.copyfile(file, draft / name)
            (draft / name).chmod(0o755)
        self._finish(draft)

    def _draft(self) -> Path:
        """Return an empty folder for a new version of the program's folder."""
        draft = self.folder.with_name(self.module + ".new")
        if draft.exists():
            shutil.rmtree(draft)
        draft.mkdir(parents=True)
        return draft

    def _finish(self, draft: Path) -> None:
        (draft / "sources").write_text(self.sources_digest, encoding="ascii")
        if self.folder.exists():
            shutil.rmtree(self.folder)
        draft.rename(self.folder)


GCS_SERVER = GoProgram(module="fake-gcs-server", package="github.com/fsouza/fake-gcs-server", binary="fake-gcs-server")
"""Server of Cloud Storage's API, for rehearsals and tests."""


def build_all(programs: Sequence[GoProgram]) -> None:
    """Build the missing programs. Downloaded modules and compiled objects stay until `remove_objects`."""
    if all(program.is_built() for program in programs):
        return
    cache_folder().mkdir(parents=True, exist_ok=True)
    with _lock_file().open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not has_go():
            install_go()
        for program in programs:
            if not program.is_built():
                _copy_standard_library()
                program.build()


def remove_objects() -> None:
    """Remove the modules and objects of all builds. If another process builds now, that process removes them later."""
    if not _work_folder().exists():
        return
    with _lock_file().open("w", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        shutil.rmtree(_work_folder(), ignore_errors=True)


def _lock_file() -> Path:
    return cache_folder() / "go-build.lock"


def _copy_standard_library() -> None:
    """Copy the objects of Go's standard library to the build cache. Compile them once for all programs."""
    key = hashlib.sha256(repr((_version(go()), COMPILER_FLAGS)).encode()).hexdigest()[:12]
    kept = cache_folder() / f"go-std-{key}"
    if not kept.exists():
        for old in cache_folder().glob("go-std-*"):
            shutil.rmtree(old)
        draft = kept.with_name(f"{kept.name}.new")
        _compile("Go's standard library", PAUSE_MODULE, ["std"], objects=draft)
        draft.rename(kept)
    objects = _work_folder() / "objects"
    if not objects.exists():
        draft = objects.with_name("objects.new")
        shutil.rmtree(draft, ignore_errors=True)
        # Use new modification times, because Go removes objects that were not used for days.
        shutil.copytree(kept, draft, copy_function=shutil.copyfile)
        draft.rename(objects)


def _compile(what: str, module: str, words: Sequence[str], *, objects: Path | None = None, cgo: bool = False) -> None:
    extra = {"CGO_ENABLED": str(int(cgo))} | ({"GOCACHE": str(objects)} if objects else {})
    _run_go(["build", *COMPILER_FLAGS, *words], f"building {what}", MODULES / module, extra)


def _run_go(words: Sequence[str], what: str, folder: Path, extra: Mapping[str, str] | None = None) -> str:
    """Run `go` in a folder and return its output. Raises RuntimeError with the end of its output."""
    environment = build_environment() | dict(extra or {})
    done = subprocess.run([go(), *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{what} failed:\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def _work_folder() -> Path:
    return cache_folder() / "go-build"


def build_environment() -> dict[str, str]:
    """Return the environment of `go build`.

    Modules and objects go to a folder in the cache, because the programs share hundreds of packages. An interrupted
    set-up continues with them. Builds do not use the user's own Go folders.
    """
    return {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOWORK": "off",
        "GOCACHE": str(_work_folder() / "objects"),
        "GOPATH": str(_work_folder() / "path"),
        "GOMODCACHE": str(_work_folder() / "modules"),
        "GOFLAGS": f"{os.environ.get('GOFLAGS', '')} -modcacherw".strip(),
        "GOGC": "off",
        "GOMEMLIMIT": str(_compiler_bytes()),
    }


def _compiler_bytes() -> int:
    """Return the memory limit of each compiler: half of the machine's memory, divided by the number of processors.

    The limit is at most MAX_COMPILER_BYTES.
    """
    machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(MAX_COMPILER_BYTES, machine // 2 // (os.cpu_count() or 1))


def toolchain_folder() -> Path:
    """Return the folder for the Go toolchain from the Python package index."""
    pins = (MODULES.parent / "go-toolchain.txt").read_bytes()
    return cache_folder() / f"go-{hashlib.sha256(pins).hexdigest()[:12]}"


def go() -> str:
    """Return the `go` to build with: the machine's own if it is new enough, else the installed one.

    Raises RuntimeError if there is neither.
    """
    for candidate in (shutil.which("go"), str(toolchain_folder() / "go" / "bin" / "go")):
        if candidate and Path(candidate).exists() and _version(candidate) >= OLDEST_GO:
            return candidate
    raise RuntimeError(f"no Go of {'.'.join(map(str, OLDEST_GO))} or newer; run {make_command('setup', STACK='')}")


def has_go() -> bool:
    """Return True if this machine has a Go that is new enough."""
    try:
        return bool(go())
    except RuntimeError:
        return False


def uv() -> Path:
    """Return the pinned uv that setup/python installed. Raises RuntimeError if it is missing."""
    found = sorted(cache_folder().glob("uv-*/bin/uv"))
    if not found:
        raise RuntimeError(f"uv is missing; run {make_command('setup', STACK='')}")
    return found[-1]


def install_go() -> None:
    """Install the pinned toolchain from the Python package index."""
    # An interrupted installation may lack tools, so the draft replaces the target only when complete.
    target = toolchain_folder()
    draft = target.with_name(f"{target.name}.new")
    shutil.rmtree(draft, ignore_errors=True)
    pins = str(MODULES.parent / "go-toolchain.txt")
    subprocess.run(
        [str(uv()), "--quiet", "pip", "install", "--require-hashes", "--target", str(draft), "-r", pins], check=True
    )
    for program in (draft / "go" / "bin").iterdir():
        program.chmod(0o755)
    for program in (draft / "go" / "pkg" / "tool").rglob("*"):
        program.chmod(0o755)
    shutil.rmtree(target, ignore_errors=True)
    draft.rename(target)


def _version(program: str) -> tuple[int, ...]:
    text = subprocess.run([program, "version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"go(\d+)\.(\d+)(?:\.(\d+))?", text)
    return tuple(int(part or 0) for part in found.groups()) if found else (0,)
