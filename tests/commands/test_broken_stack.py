"""`down` of real stacks with invalid settings, a wrong passphrase, a damaged state or a full disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from commands.stack_files import SECRET_KEY

ROOT = Path(__file__).resolve().parents[2]
LIMIT_SECONDS = 120
VALID = "config:\n  trainyard:platform: {kind: gke, project: some-project}\n  trainyard:jobs: []\n"
"""Valid settings of the stack."""
COMPONENT = {"urn": "urn:pulumi:mine::trainyard::some:Component::first", "custom": False, "type": "some:Component"}
CREATE_PROGRAM = """
import json
import yaml
from commands.stack import ensure_stack, pulumi
resource, draft, config = {resource!r}, {draft!r}, {config!r}
ensure_stack("mine")
found = json.loads(pulumi("stack", "export", "--stack", "mine", quiet=True))
salt = found["deployment"]["secrets_providers"]["state"]["salt"]
open(config, "w").write(json.dumps(dict(encryptionsalt=salt)))
pulumi("config", "set", "--secret", "name", '"secret"', "--config-file", config, "--stack", "mine", quiet=True)
ciphertext = yaml.safe_load(open(config))["config"]["trainyard:name"]["secure"]
resource["outputs"] = dict(name={{{key!r}: {signature!r}, "ciphertext": ciphertext}})
found["deployment"]["resources"] = [resource]
open(draft, "w").write(json.dumps(found))
pulumi("stack", "import", "--file", draft, "--stack", "mine", quiet=True)
"""
"""Program that creates stack `mine` with a component that has a secret output."""
FULL_DISK = """
set -e
cp -a "$0" "$0.copy"
mount -n -t tmpfs -o size=1m tmpfs "$0"
cp -a "$0.copy/." "$0"
cat /dev/zero > "$0/filler" 2>/dev/null || true  # ends with an error when the disk is full
truncate -s -$FREE_BYTES "$0/filler"
"$@"
"""
"""Script that copies the project to a small disk with FREE_BYTES left, and runs a command."""
UNREADABLE_STATE = '{"version": 3, "checkpoint": {"latest": {"metadata": {"integrity_error": 7}}}}'
"""State that Pulumi cannot read, although `recover` finds no damage in it."""
SECRET_SIGNATURE = "1b47061264138c4ac30d75fd1eb44270"
"""Value by which Pulumi marks an object as a secret."""


@dataclass(frozen=True)
class Project:
    """Project outside of the checkout with a stack `mine` of one component."""

    folder: Path

    def run(
        self, *words: str, prefix: tuple[str, ...] = (), variables: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run Python with these arguments on the stack. The command line starts with `prefix`. Return the result."""
        unset = ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE", "JOB")
        environment = {key: value for key, value in os.environ.items() if key not in unset}
        environment |= {"TRAINYARD_PROJECT": str(self.folder), "STACK": "mine", "TRAINYARD_COMMAND": "trainyard"}
        environment |= variables or {}
        done = subprocess.run(
            [*prefix, sys.executable, *words],
            cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=LIMIT_SECONDS, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def down(self, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run `down` with these environment variables. Return the result."""
        return self.run("-m", "commands.down", variables=variables)

    @property
    def settings(self) -> Path:
        """Settings file of the stack."""
        return self.folder / "Pulumi.mine.yaml"

    @property
    def state(self) -> Path:
        """State file of the stack."""
        return self.folder / ".trainyard" / "pulumi" / ".pulumi" / "stacks" / "trainyard" / "mine.json"

    @property
    def passphrase(self) -> Path:
        """File with the passphrase of the stack's secrets."""
        return self.folder / ".trainyard" / "passphrase"

    @property
    def resources(self) -> list[object]:
        """Resources in the state."""
        found: list[object] = json.loads(self.state.read_bytes())["checkpoint"]["latest"].get("resources") or []
        return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Return a project whose stack was created by CREATE_PROGRAM."""
    found = Project(tmp_path)
    found.settings.write_text(VALID, encoding="utf-8")
    program = CREATE_PROGRAM.format(
        resource=COMPONENT,
        draft=str(tmp_path / "draft.json"),
        config=str(tmp_path / "secrets.yaml"),
        key=SECRET_KEY,
        signature=SECRET_SIGNATURE,
    )
    done = found.run("-c", program)
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


def test_down_with_another_passphrase_names_the_variable_and_keeps_the_stack(project: Project) -> None:
    done = project.down(PULUMI_CONFIG_PASSPHRASE="another")
    assert done.returncode == 1
    assert done.stderr.startswith("make down: PULUMI_CONFIG_PASSPHRASE: not the passphrase of stack mine")
    assert f"unset it to use {project.passphrase};" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "passphrase" not in done.stdout
    assert len(project.resources) == 1
    assert project.down().returncode == 0


@pytest.mark.parametrize("text", ["another", None])
def test_down_with_edited_or_deleted_passphrase_names_the_file_and_does_not_write_it(
    project: Project, text: str | None
) -> None:
    before = project.passphrase.read_text(encoding="ascii")
    project.passphrase.unlink()
    if text:
        project.passphrase.write_text(text, encoding="ascii")
    problem = "not the passphrase of stack mine" if text else "no such file; it must have the passphrase of stack mine"
    done = project.down()
    assert done.returncode == 1
    assert done.stderr.startswith(f"make down: {project.passphrase}: {problem}")
    assert len(done.stderr.splitlines()) == 1
    assert "passphrase" not in done.stdout
    assert project.passphrase.exists() == bool(text), "`down` must not create a passphrase: it would not fit the state"
    assert project.down(PULUMI_CONFIG_PASSPHRASE=before).returncode == 0


def test_down_with_the_salt_of_another_checkout_names_the_settings_file(project: Project) -> None:
    salt = "v1:wSbwJZDAAIU=:v1:B6IjODyc4eQUgTZv:PyJ4UDF0sutIA6orBHgXRoq9IlMcvw=="
    project.settings.write_text(f"{VALID}encryptionsalt: {salt}\n", encoding="utf-8")
    done = project.down()
    assert done.returncode == 1
    assert "Pulumi.mine.yaml: its `encryptionsalt` was written with another passphrase" in done.stderr


def test_down_and_status_with_damaged_state_use_its_backup(project: Project) -> None:
    project.state.write_text("{}", encoding="utf-8")
    status = project.run("-m", "commands.status")
    assert "stack mine: mine.json was damaged; using the state before the last write" in status.stdout
    project.state.write_text("{}", encoding="utf-8")
    done = project.down()
    assert (done.returncode, done.stderr) == (0, "")
    assert "mine.json was damaged" in done.stdout


@pytest.mark.parametrize("free", [8192, 32768])
def test_down_on_a_full_disk_names_a_file_and_says_to_free_space(project: Project, free: int) -> None:
    prefix = ("unshare", "--mount", "sh", "-c", FULL_DISK, str(project.folder))
    done = project.run("-m", "commands.down", prefix=prefix, variables={"FREE_BYTES": str(free)})
    assert done.returncode == 1
    *_, last = done.stderr.splitlines()
    assert last.startswith(f"make down: {project.state.parents[2]}/")
    assert last.endswith(": No space left on device; free some disk space, then run the command again")
    assert "Resources:" not in done.stdout, "Pulumi's table must be hidden, because it shows no reason"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "is damaged and has no intact copy"),
        (UNREADABLE_STATE, "cannot be read: json: "),
    ],
)
def test_status_and_down_with_a_damaged_state_and_no_copy_name_the_file(
    project: Project, text: str, problem: str
) -> None:
    for each in (project.state, Path(f"{project.state}.bak")):
        each.write_text(text, encoding="utf-8")
    for copy in (project.folder / ".trainyard" / "pulumi" / ".pulumi" / "backups").glob("*/*/*.json"):
        copy.unlink()
    for module in ("status", "down"):
        done = project.run("-m", f"commands.{module}")
        assert done.returncode == 1
        assert f"its state {project.state} {problem}" in done.stderr
        assert "docs/troubleshooting.md" in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_down_of_a_local_cluster_with_unreadable_state_resets_the_state(project: Project) -> None:
    settings = VALID.replace("{kind: gke, project: some-project}", "{kind: local}")
    project.settings.write_text(settings, encoding="utf-8")
    project.state.write_text(UNREADABLE_STATE, encoding="utf-8")
    done = project.down()
    assert done.returncode == 0, done.stderr
    assert "cannot be read" in done.stdout
    assert "nothing is left" in done.stdout
    assert not project.state.exists()
