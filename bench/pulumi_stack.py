"""Separate stack for the bench: any program and configuration, with its state in a temporary folder."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from pathlib import Path
from typing import Any

import yaml

from bench.measure import BenchError
from commands.environment import stack_environment

Objects = dict[tuple[str, str], dict[str, Any]]


class BenchStack:
    """Pulumi stack. Every call that fails raises BenchError with the output of `pulumi`."""

    def __init__(self, name: str, program: Path, folder: Path) -> None:
        self._name = name
        self._program = program
        self._settings = folder / "config.yaml"
        backend, temporary = folder / "state", folder / "tmp"
        backend.mkdir()
        temporary.mkdir()
        self._environment = {
            **stack_environment(),
            "PULUMI_BACKEND_URL": f"file://{backend}",
            "PULUMI_CONFIG_PASSPHRASE": "bench",
            # The Kubernetes provider of a handwritten program leaves a kubeconfig in this folder.
            "TMPDIR": str(temporary),
        }
        self._environment.pop("PULUMI_CONFIG_PASSPHRASE_FILE", None)
        settings = program / f"Pulumi.{name}.yaml"
        if settings.exists():
            raise BenchError(
                f"{settings.name} is there already; the bench needs the stack name {name}: remove the file"
            )
        self._pulumi("stack", "init", name, "--no-select")
        settings.unlink(missing_ok=True)  # It contains only the new stack's salt.

    def up(self, config: dict[str, Any], *words: str) -> float:
        """Run `pulumi up`. Return its seconds."""
        return self._timed("up", "--yes", "--skip-preview", *words, config=config)

    def preview(self, config: dict[str, Any], *words: str) -> float:
        """Run `pulumi preview`. Return its seconds."""
        return self._timed("preview", *words, config=config)

    def destroy(self) -> None:
        """Run `pulumi destroy` with the settings of the last command."""
        self._pulumi("destroy", "--yes", "--skip-preview", "--config-file", str(self._settings), "--stack", self._name)

    def objects(self, renamed: tuple[str, str] = ("", "")) -> Objects:
        """Return the inputs of the stack's Kubernetes objects in its state, by kind and name.

        `renamed` is a namespace and its replacement. The replacement also applies to longer names with that prefix.
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

    def _timed(self, *words: str, config: dict[str, Any]) -> float:
        self._settings.write_text(yaml.safe_dump({"config": config}), encoding="utf-8")
        begun = time.monotonic()
        self._pulumi(*words, "--config-file", str(self._settings), "--stack", self._name)
        return time.monotonic() - begun

    def _pulumi(self, *words: str) -> str:
        done = subprocess.run(
            ["pulumi", *words, "--non-interactive", "--color", "never"],
            cwd=self._program,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip()
            raise BenchError(f"`pulumi {' '.join(words)}` failed with {done.returncode}:{os.linesep}{said}")
        return done.stdout
