"""Stack on simulated clouds: the real Pulumi engine runs the test's own program, without a cluster."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from commands.stack_files import StateFiles
from setup.pulumi_cli import path_folders
from simulation.cloud.model import CloudState, edit_state, new_state, read_state

ROOT = Path(__file__).resolve().parents[2]


def platform_program(settings: Mapping[str, Any]) -> str:
    """Return a program that creates the resources of a platform in its cloud."""
    return f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from tests.rehearsal.cloud_program import build
build({settings!r})
"""


@dataclass
class SimulatedStack:
    """Stack in a folder, with its own program, backend and simulated clouds."""

    folder: Path

    def write(self, program: str) -> None:
        """Write the program."""
        runtime = {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}}
        (self.folder / "Pulumi.yaml").write_text(json.dumps({"name": "clouds", "runtime": runtime}))
        (self.folder / "__main__.py").write_text(f"import pulumi\nfrom pulumi import ResourceOptions\n{program}")

    def begin(self, program: str) -> None:
        """Create empty clouds and the stack of a program."""
        (self.folder / "backend").mkdir()
        self.write(program)
        new_state(self.folder / "clouds")
        self.run("stack", "init", "test")

    def environment(self) -> dict[str, str]:
        """Return the environment of a command, with the simulated providers first on PATH."""
        before, after = path_folders(ROOT)
        path = [ROOT / "simulation" / "bin", *before, *after]
        return {
            **os.environ,
            "PATH": os.pathsep.join([*map(str, path), os.environ["PATH"]]),
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_BACKEND_URL": f"file://{self.folder / 'backend'}",
            "PULUMI_CONFIG_PASSPHRASE": "for tests",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            "TRAINYARD_REHEARSAL": str(self.folder / "clouds"),
        }

    def run(self, *words: str, fails: bool = False) -> str:
        """Run a Pulumi command and return its output. Assert that the command fails exactly if `fails` is true."""
        done = subprocess.run(
            ["pulumi", *words, "--non-interactive", "--color", "never"],
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stdout
        return done.stdout

    def succeeds(self, *words: str) -> bool:
        """Run a Pulumi command and assert that it succeeds. Return True, the result that `adopt` requires."""
        self.run(*words)
        return True

    def repaired_state(self) -> dict[str, Any]:
        """Repair the state as `make up` does after a killed Pulumi, and return the state."""
        StateFiles(self.folder / "backend", "clouds", "test").repair()
        self.run("cancel", "--yes")
        found: dict[str, Any] = json.loads(self.run("stack", "export"))
        return found

    def up(self, *options: str, fault: str = "", fails: bool = False) -> str:
        """Deploy the program with Pulumi's options, with or without a fault."""
        self._set_fault(fault)
        return self.run("up", "--yes", "--skip-preview", *options, fails=fails)

    def _set_fault(self, fault: str) -> None:
        with edit_state(self.folder / "clouds") as state:
            state.fault, state.calls = fault, 0

    def destroy(self, *, fault: str = "", fails: bool = False) -> str:
        """Destroy the stack, with or without a fault."""
        self._set_fault(fault)
        return self.run("destroy", "--yes", "--skip-preview", fails=fails)

    @property
    def clouds(self) -> CloudState:
        """Current state of the clouds."""
        return read_state(self.folder / "clouds")

    def operations(self, start: int = 0) -> list[str]:
        """Return the operations of the clouds from number `start` on, such as `delete gpus-nodes`."""
        return [f"{each.verb} {each.urn.rpartition('::')[2]}" for each in self.clouds.operations[start:]]

    def outputs(self) -> dict[str, Any]:
        """Return the stack's outputs."""
        found: dict[str, Any] = json.loads(self.run("stack", "output", "--json"))
        return found
