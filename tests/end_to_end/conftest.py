"""A separate checkout of this project with its own cluster, and the commands that a user runs in it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.local.settings import ClusterSettings, cache_folder

PROJECT = Path(__file__).resolve().parents[2]
CLUSTER = "e2e"
RUN_IN_SHELL = """
import os, sys
from commands.environment import stack_environment
os.execvpe(sys.argv[1], sys.argv[1:], stack_environment())
"""
"""Program that runs its arguments as a command in the environment of `make shell`."""


@dataclass(frozen=True)
class Checkout:
    """Separate checkout of this project, with a local stack."""

    folder: Path
    is_verbose: bool = True
    """True if commands print the lines of all ranks."""

    @property
    def cluster(self) -> ClusterSettings:
        """Cluster of the checkout's stack."""
        return ClusterSettings(owner=str(self.folder), name=CLUSTER)

    @property
    def stack_file(self) -> Path:
        """File with the stack's settings."""
        return self.folder / "Pulumi.local.yaml"

    def change(self, **job: Any) -> None:
        """Change keys of the stack's first job."""
        content = yaml.safe_load(self.stack_file.read_text(encoding="utf-8"))
        content["config"]["trainyard:jobs"][0].update(job)
        self.stack_file.write_text(yaml.safe_dump(content), encoding="utf-8")

    @contextmanager
    def changed_jobs(self, *jobs: dict[str, Any]) -> Iterator[None]:
        """Replace the stack's jobs. Restore the settings at the end."""
        with self.restored_settings():
            content = yaml.safe_load(self.stack_file.read_text(encoding="utf-8"))
            content["config"]["trainyard:jobs"] = list(jobs)
            self.stack_file.write_text(yaml.safe_dump(content), encoding="utf-8")
            yield

    @contextmanager
    def restored_settings(self) -> Iterator[None]:
        """Restore the stack's settings at the end."""
        settings = self.stack_file.read_bytes()
        try:
            yield
        finally:
            self.stack_file.write_bytes(settings)

    def run(self, *words: str, status: int | None = 0, seconds: float = 600, errors: int = subprocess.STDOUT) -> str:
        """Run a command in the checkout, assert its exit status, and return its output.

        By default, standard error is part of the output. `errors` names another target for standard error.
        """
        try:
            done = subprocess.run(
                words,
                cwd=self.folder,
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            output = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else error.stdout or ""
            raise AssertionError(f"{' '.join(words)} is not done after {seconds:.0f} s:\n{output}") from None
        assert status is None or done.returncode == status, f"{done.stdout}\n{done.stderr or ''}"
        return done.stdout

    def start(self, *words: str, stdin: int = subprocess.DEVNULL, own_group: bool = False) -> subprocess.Popen[str]:
        """Start a command in the checkout. Its output and its errors go to one pipe.

        With `own_group`, the command leads its own process group, so that a test can signal all of its processes.
        """
        return subprocess.Popen(
            words,
            cwd=self.folder,
            env=self.environment(),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=own_group,
        )

    def up_with_fault(self, *words: str, at: str, fault: Callable[[], object]) -> tuple[str, str]:
        """Run `make up`, and call `fault` at the first line with the text `at`.

        Return the output up to that line and the output after it. The command must succeed.
        """
        lines: list[str] = []
        num_before = 0
        with self.start("make", "up", *words) as process:
            assert process.stdout is not None
            for line in process.stdout:
                lines.append(line)
                if not num_before and at in line:
                    num_before = len(lines)
                    fault()
        after = "".join(lines[num_before:])
        assert num_before, after[-3000:]
        assert process.returncode == 0, after[-3000:]
        return "".join(lines[:num_before]), after

    def tool(self, *words: str, status: int | None = 0) -> str:
        """Run a command as in `make shell`, such as `pulumi`. Return its standard output."""
        return self.run(".venv/bin/python", "-c", RUN_IN_SHELL, *words, status=status, errors=subprocess.PIPE)

    def kubectl(self, *words: str) -> str:
        """Run kubectl in the namespace of the stack's jobs. Return its standard output."""
        return self.tool("kubectl", "--kubeconfig", str(self.cluster.kubeconfig), "--namespace", "training", *words)

    def objects(self, *words: str) -> list[dict[str, Any]]:
        """Return the objects that `kubectl get` finds."""
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", *words, "-o", "json"))["items"]
        return found

    def environment(self) -> dict[str, str]:
        """Return the environment of this process, without the variables of Pulumi, kubectl, make and the stack.

        PATH lacks the folders of this checkout and of the cache. VERBOSE follows `is_verbose`.
        """
        dropped = ("PULUMI_", "STACK", "KUBECONFIG", "MAKE", "MFLAGS")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(dropped)}
        own_folders = (str(PROJECT), str(cache_folder()))
        kept["VERBOSE"] = "1" if self.is_verbose else ""
        path = kept["PATH"].split(os.pathsep)
        kept["PATH"] = os.pathsep.join(each for each in path if not each.startswith(own_folders))
        return kept


def copy_project(folder: Path) -> None:
    """Copy the tracked files and new files to a folder. The copy uses the Python environment of this checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source, target = PROJECT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    (folder / ".venv").symlink_to(PROJECT / ".venv")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Checkout]:
    """Yield a separate checkout. Destroy its stack after the tests of the file."""
    folder = tmp_path_factory.mktemp("checkout") / "project"
    copy_project(folder)
    created = Checkout(folder)
    content = yaml.safe_load(created.stack_file.read_text(encoding="utf-8"))
    content["config"]["trainyard:platform"].update(name=CLUSTER)
    created.stack_file.write_text(yaml.safe_dump(content), encoding="utf-8")
    try:
        yield created
    finally:
        created.run("make", "down", status=None)


def processes() -> list[int]:
    """Return the ids of all processes of this machine."""
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def is_pulumi_in(pid: int, folder: Path) -> bool:
    """Return True if the process is a Pulumi CLI that runs in `folder`."""
    process = Path(f"/proc/{pid}")
    try:
        program = (process / "cmdline").read_bytes().split(b"\0")[0]
        return program.endswith(b"pulumi") and (process / "cwd").readlink() == folder
    except OSError:
        return False
