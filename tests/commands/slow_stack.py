"""Pulumi stack for tests, and commands on this stack. A creation or deletion lasts until the test ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.end_to_end.conftest import is_pulumi_in, processes

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 120.0
PROGRAM = """
import os
import pulumi
from pulumi import dynamic

class Provider(dynamic.ResourceProvider):
    def create(self, props):
        import time
        from pathlib import Path
        folder = Path(props["folder"])
        (folder / "creating").touch()
        while not (folder / "end").exists():
            time.sleep(0.02)
        return dynamic.CreateResult("created", props)

    def delete(self, id, props):
        import time
        from pathlib import Path
        folder = Path(props["folder"])
        (folder / "deleting").touch()
        while not (folder / "end").exists():
            time.sleep(0.02)

class Slow(dynamic.Resource):
    def __init__(self, name, opts=None):
        super().__init__(Provider(), name, {"folder": os.getcwd()}, opts)

first = Slow("first")
Slow("second", pulumi.ResourceOptions(depends_on=[first]))
"""
"""Pulumi program of the stack. An operation creates the file `creating` or `deleting`, and waits for the file `end`."""
COMMAND = """
import sys
from pathlib import Path
from commands import interrupts, stack_files, pulumi_output, stack
stack.PROJECT = Path(sys.argv[1])
stack.program_folder = lambda: stack.PROJECT
stack_files.STATE = pulumi_output.STATE = stack.PROJECT / "trainyard"
interrupts.REPORT_SECONDS = 0.5

def main():
    try:
        with stack_files.stack_lock("dev", "`make up`"):
            stack.recover("dev")
            stack.ensure_stack("dev")
            stack.pulumi(sys.argv[2], "--yes", "--skip-preview", "--stack", "dev")
    except stack.PulumiFailed as error:
        print(f"make up: {error}", file=sys.stderr)
        return 1
    return 0

sys.exit(interrupts.run_command("make up", main))
"""
"""Program that runs `pulumi up` or `pulumi destroy` on the stack as `make up` does."""


@dataclass
class SlowStack:
    """Stack `dev` with two resources. Each creation or deletion lasts until the file `end` exists."""

    folder: Path
    backend: str
    _started: list[subprocess.Popen[str]] = field(default_factory=list)

    def start(self, verb: str = "up") -> subprocess.Popen[str]:
        """Start COMMAND with the verb `up` or `destroy`."""
        # A separate process group lets a test interrupt only this command with killpg, as Ctrl-C does.
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, str(self.folder), verb],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._started.append(process)
        return process

    def start_and_wait(self) -> subprocess.Popen[str]:
        """Start an `up`. Return once Pulumi is creating the first resource."""
        process = self.start()
        self.wait_until((self.folder / "creating").exists)
        return process

    def destroy_and_interrupt(self, name: str) -> str:
        """Start a `destroy`, interrupt it while it deletes resource `name`, and let it finish. Return the output."""
        for each in ("end", "deleting"):
            (self.folder / each).unlink(missing_ok=True)
        process = self.start("destroy")
        self.wait_until((self.folder / "deleting").exists)
        process.send_signal(signal.SIGINT)
        self.wait_for_output(process, f"still waiting for deleting {name}")
        (self.folder / "end").touch()
        return self.finish(process, 130)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the commands."""
        return {
            **os.environ,
            "PULUMI_BACKEND_URL": self.backend,
            "PULUMI_CONFIG_PASSPHRASE": "for tests",
            "PULUMI_HOME": str(self.folder / "home"),
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        }

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` is true. Fail at the time limit."""
        deadline = time.monotonic() + LIMIT_SECONDS
        while not condition():
            assert time.monotonic() < deadline, "the condition is still false at the time limit"
            time.sleep(0.02)

    def wait_for_output(self, process: subprocess.Popen[str], text: str) -> None:
        """Read the output up to a line with this text. Fail if the command ends first."""
        assert process.stdout is not None
        for line in process.stdout:
            if text in line:
                return
        raise AssertionError(f"the command exited with {process.wait()} and did not print {text!r}")

    def finish(self, process: subprocess.Popen[str], status: int) -> str:
        """Wait until the command ends with this status. Return the rest of its output."""
        output, _ = process.communicate(timeout=LIMIT_SECONDS)
        assert process.returncode == status, output
        assert "Traceback" not in output
        return output

    @property
    def locks(self) -> list[Path]:
        """Lock files of Pulumi, if its backend is the folder `state`."""
        return sorted((self.folder / "state" / ".pulumi" / "locks").glob("**/*.json"))

    @property
    def deployment(self) -> dict[str, Any]:
        """Resources and pending operations in Pulumi's state of the stack."""
        file = self.folder / "state" / ".pulumi" / "stacks" / "slow" / "dev.json"
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["checkpoint"]["latest"]
        return found

    @property
    def created(self) -> list[str]:
        """Names of the resources that exist according to the state."""
        return [each["urn"].rpartition("::")[2] for each in self.deployment["resources"] if each.get("id") == "created"]

    @property
    def pending(self) -> list[str]:
        """Names of the resources with unfinished operations."""
        return [each["resource"]["urn"].rpartition("::")[2] for each in self.deployment.get("pending_operations") or []]

    def write(self) -> None:
        """Write the Pulumi project, and create the folder `state` for a file backend."""
        runtime = {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}}
        (self.folder / "Pulumi.yaml").write_text(json.dumps({"name": "slow", "runtime": runtime}), encoding="utf-8")
        (self.folder / "__main__.py").write_text(PROGRAM, encoding="utf-8")
        (self.folder / "state").mkdir()

    def close(self) -> None:
        """End all processes of this stack."""
        (self.folder / "end").touch()
        for process in self._started:
            process.kill()
            process.communicate()
        for pid in processes():
            if is_pulumi_in(pid, self.folder):
                os.kill(pid, signal.SIGKILL)
