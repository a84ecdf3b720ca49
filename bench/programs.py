"""Pulumi and kubectl for the bench: stacks with temporary state, and the objects that they create."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from bench.measure import BenchError
from commands.environment import stack_environment
from infra.local import lifecycle
from infra.local.settings import ClusterSettings

Objects = dict[tuple[str, str], dict[str, Any]]


class BenchStack:
    """Pulumi stack with its state in a folder. If `pulumi` fails, every method raises BenchError with its output."""

    def __init__(self, name: str, program: Path, folder: Path, environment: Mapping[str, str] | None = None) -> None:
        self._name = name
        self._program = program
        self._settings = folder / "config.yaml"
        backend, temporary = folder / "state", folder / "tmp"
        backend.mkdir(parents=True)
        temporary.mkdir()
        self._environment = {
            **(stack_environment() if environment is None else environment),
            "PULUMI_BACKEND_URL": f"file://{backend}",
            "PULUMI_CONFIG_PASSPHRASE": "bench",
            # The Kubernetes provider of the hand-written program leaves a kubeconfig in $TMPDIR.
            "TMPDIR": str(temporary),
        }
        self._environment.pop("PULUMI_CONFIG_PASSPHRASE_FILE", None)
        settings = program / f"Pulumi.{name}.yaml"
        if settings.exists():
            raise BenchError(f"{settings.name} exists; the bench needs the stack name {name}: remove the file")
        self._pulumi("stack", "init", name, "--no-select")
        settings.unlink(missing_ok=True)  # The file contains only the new stack's salt.

    def up(self, config: dict[str, Any], *words: str) -> float:
        """Run `pulumi up`. Return its duration in seconds."""
        return self._timed("up", "--yes", "--skip-preview", *words, config=config)

    def preview(self, config: dict[str, Any], *words: str) -> float:
        """Run `pulumi preview`. Return its duration in seconds."""
        return self._timed("preview", *words, config=config)

    def destroy(self) -> None:
        """Run `pulumi destroy` with the settings of the last `up` or `preview`."""
        self._pulumi("destroy", "--yes", "--skip-preview", "--config-file", str(self._settings), "--stack", self._name)

    def objects(self, renamed: tuple[str, str] = ("", "")) -> Objects:
        """Return the inputs of the Kubernetes objects in the stack's state, by kind and name.

        `renamed` is a namespace and its replacement. Also replace the namespace at the start of longer names.
        """
        text = self._pulumi("stack", "export", "--stack", self._name)
        if renamed[0]:
            text = re.sub(rf'"{re.escape(renamed[0])}(?=["-])', f'"{renamed[1]}', text)
        state = json.loads(text)
        found = {}
        for resource in state["deployment"].get("resources", []):
            if resource["type"].startswith("kubernetes:"):
                inputs = {key: value for key, value in resource["inputs"].items() if not key.startswith("__")}
                found[(inputs["kind"], inputs["metadata"]["name"])] = inputs
        return found

    def save_objects(self, file: Path, name: str = "") -> None:
        """Save the objects for `kubectl apply`: all of them, or only those called `name`."""
        items = [inputs for (_, each), inputs in self.objects().items() if name in ("", each)]
        if not items:
            raise BenchError(f"the stack has no objects called {name}" if name else "the stack has no objects")
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")

    def _timed(self, *words: str, config: dict[str, Any]) -> float:
        self._settings.write_text(yaml.safe_dump({"config": config}), encoding="utf-8")
        started = time.monotonic()
        self._pulumi(*words, "--config-file", str(self._settings), "--stack", self._name)
        return time.monotonic() - started

    def _pulumi(self, *words: str) -> str:
        return _output(
            ["pulumi", *words, "--non-interactive", "--color", "never"], cwd=self._program, env=self._environment
        )


def kubectl(settings: ClusterSettings, *words: str) -> None:
    """Run kubectl and wait for its end. Raises BenchError with its error output."""
    _output([str(lifecycle.programs_folder() / "kubectl"), "--kubeconfig", str(settings.kubeconfig), *words])


def _output(command: list[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f"`{' '.join(command)}` failed with {done.returncode}:\n{(done.stdout + done.stderr).strip()}")
    return done.stdout


def wait_until(is_done: Callable[[], bool], seconds: float, problem: str) -> None:
    """Wait until a condition is true. Raises BenchError with `problem` after `seconds`."""
    deadline = time.monotonic() + seconds
    while not is_done():
        if time.monotonic() > deadline:
            raise BenchError(f"{problem} after {seconds:.0f} s")
        time.sleep(0.2)


@contextmanager
def removed_afterwards(settings: ClusterSettings) -> Iterator[None]:
    """Return a context that stops a cluster at its end. Raises BenchError if the machine still has parts of it."""
    try:
        yield
    finally:
        lifecycle.stop(settings)
        if left := lifecycle.find_leftovers(settings):
            raise BenchError(
                f"parts of the bench's cluster are still on this machine: {', '.join(left)}; end or remove them"
            )
