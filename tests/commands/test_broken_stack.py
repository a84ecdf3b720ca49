"""`down` on real stacks whose settings, passphrase, state or disk are broken."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 120
VALID = "config:\n  trainyard:platform: {kind: gke, project: some-project}\n  trainyard:jobs: []\n"
COMPONENT = {"urn": "urn:pulumi:mine::trainyard::some:Component::first", "custom": False, "type": "some:Component"}
CREATE = """
import json
from commands.stack import ensure_stack, pulumi, settings_without_salt
ensure_stack("mine")
found = json.loads(pulumi("stack", "export", "--stack", "mine", quiet=True))
found["deployment"]["resources"] = [json.loads({resource!r})]
open({file!r}, "w").write(json.dumps(found))
pulumi("stack", "import", "--file", {file!r}, "--stack", "mine", quiet=True)
"""


@dataclass(frozen=True)
class Project:
    """Project outside of the checkout with stack `mine`, which has one component."""

    folder: Path

    def run(self, *words: str, prefix: tuple[str, ...] = (), **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Python on the stack, after the words in `prefix`, and return the result."""
        unset = ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE", "JOB")
        environment = {key: value for key, value in os.environ.items() if key not in unset}
        environment |= {"TRAINYARD_PROJECT": str(self.folder), "STACK": "mine", "TRAINYARD_COMMAND": "trainyard"}
        done = subprocess.run(
            [*prefix, sys.executable, *words],
            cwd=ROOT, env={**environment, **variables}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=LIMIT_SECONDS, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def down(self, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `down`."""
        return self.run("-m", "commands.down", **variables)

    @property
    def settings(self) -> Path:
        """The stack's settings."""
        return self.folder / "Pulumi.mine.yaml"

    @property
    def state(self) -> Path:
        """The stack's state."""
        return self.folder / ".trainyard" / "pulumi" / ".pulumi" / "stacks" / "trainyard" / "mine.json"

    @property
    def resources(self) -> list[object]:
        """The resources in the state."""
        found: list[object] = json.loads(self.state.read_bytes())["checkpoint"]["latest"].get("resources") or []
        return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project whose stack is up."""
    found = Project(tmp_path)
    found.settings.write_text(VALID, encoding="utf-8")
    done = found.run("-c", CREATE.format(resource=json.dumps(COMPONENT), file=str(tmp_path / "draft.json")))
    assert done.returncode == 0, done.stderr
    assert len(found.resources) == 1
    return found


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("[]", "[{name: first, recipe: digits, hosts: -1}]"),
        lambda text: text.replace("trainyard:platform", "trainyard:platfrom"),
        lambda text: text.replace("  trainyard:jobs", "\ttrainyard:jobs"),
    ],
    ids=["job", "platform", "tab"],
)
def test_down_with_invalid_settings_removes_the_stack(project: Project, change: Callable[[str], str]) -> None:
    project.settings.write_text(change(VALID), encoding="utf-8")
    done = project.down()
    assert done.returncode == 0, done.stderr
    assert "Pulumi.mine.yaml: cannot be used" in done.stdout
    assert "nothing is left" in done.stdout
    assert (done.stderr, project.resources) == ("", [])
