"""`make preview` of a changed program, script or list of stacks, in a temporary repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from commands.environment import PROJECT

STACK = """config:
  trainyard:platform: {kind: gke, project: some-project, pools: [{name: cpu, machine_type: n2-standard-8, nodes: 2}]}
  trainyard:jobs:
    - {name: mine, script: ./train.py, hosts: 2}
"""
Edit = Callable[[str, Callable[[str], str]], None]
"""Function that edits the file at a path. Its second argument maps the old text to the new text."""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a git repository with a copy of the project and a stack that runs a user's script."""
    folder = tmp_path_factory.mktemp("project")
    words = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(words, cwd=PROJECT, check=True, capture_output=True, text=True).stdout.splitlines()
    for name in listed:
        if (PROJECT / name).is_file() and not (PROJECT / name).is_symlink():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(PROJECT / name, folder / name)
    (folder / "Pulumi.mine.yaml").write_text(STACK, encoding="utf-8")
    (folder / "train.py").write_text("print('one')\n", encoding="utf-8")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=before")
    return folder


@pytest.fixture
def project(repository: Path) -> Path:
    """Return the folder of the repository, with branch `main` checked out and no changes."""
    git(repository, "checkout", "--quiet", "--force", "main")
    return repository


@pytest.fixture
def edit(project: Path) -> Edit:
    """Return a function that edits a file of the project."""

    def edit_file(name: str, change: Callable[[str], str]) -> None:
        path = project / name
        text = path.read_text(encoding="utf-8")
        assert change(text) != text, f"{name} is not changed"
        path.write_text(change(text), encoding="utf-8")

    return edit_file


def git(folder: Path, *words: str) -> None:
    """Run git in a folder."""
    identity = ("-c", "user.name=tester", "-c", "user.email=tester@example.com", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True)


def preview(folder: Path, stack: str = "mine", base: str = "main") -> str:
    """Return the Markdown report of `make preview`."""
    shutil.rmtree(folder / "report", ignore_errors=True)
    checkout = folder if (folder / "commands").is_dir() else PROJECT
    words = [
        sys.executable,
        "-m",
        "commands.cli",
        "preview",
        f"--stack={stack}",
        f"--base={base}",
        f"--output={folder}/report",
        "--no-plugins",
    ]
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    if checkout != folder:
        environment |= {"TRAINYARD_COMMAND": "trainyard", "TRAINYARD_PROJECT": str(folder)}
    done = subprocess.run(words, cwd=folder, env=environment, check=False, capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    return (folder / "report" / "report.md").read_text(encoding="utf-8")


def test_preview_of_the_same_program_shows_no_change(project: Path, edit: Edit) -> None:
    edit("README.md", lambda text: text + "\n")
    found = preview(project)
    assert "unchanged." in found
    assert not [word for word in ("Update", "Create", "REPLACE", "DELETE", "compared:") if word in found]


def test_preview_of_a_program_that_makes_the_bucket_public_shows_an_update(project: Path, edit: Edit) -> None:
    edit("infra/gcp/storage.py", lambda text: text.replace('"enforced"', '"inherited"'))
    found = preview(project)
    assert "Update 1: 1 Bucket" in found
    assert "publicAccessPrevention" in found


def test_preview_of_an_edited_script_replaces_its_job(project: Path, edit: Edit) -> None:
    edit("train.py", lambda text: text.replace("one", "two"))
    found = preview(project)
    assert "**REPLACE**" in found
    assert "1 Job" in found


def test_preview_of_an_edited_trainer_rebuilds_the_image_and_replaces_its_job(project: Path, edit: Edit) -> None:
    edit("trainer/Dockerfile", lambda text: text + "\n# another\n")
    found = preview(project, "dev")
    assert "- `image-build`: contextHash" in found
    assert "- `tiny-imagenet-job`: spec.template" in found.partition("**REPLACE**")[2]


def test_preview_with_a_broken_base_program_compares_only_the_settings(project: Path, edit: Edit) -> None:
    git(project, "checkout", "--quiet", "-B", "broken")
    edit("infra/gcp/storage.py", lambda text: text + "\nraise RuntimeError('broken before')\n")
    git(project, "commit", "--quiet", "--all", "--message=broken")
    git(project, "checkout", "--quiet", "-B", "repaired")
    git(project, "revert", "--no-edit", "HEAD")
    found = preview(project, base="broken")
    assert "Only the settings are compared: the program before the change cannot run" in found
    assert "broken before" in found


@pytest.mark.parametrize("has_script", [True, False])
def test_preview_of_a_removed_stack_warns_that_its_resources_remain(project: Path, *, has_script: bool) -> None:
    (project / "Pulumi.mine.yaml").unlink()
    if not has_script:
        (project / "train.py").unlink()
    found = preview(project)
    assert "**Its resources remain.**" in found
    assert "It costs **$" in found


USER_STACK = """config:
  trainyard:platform: {kind: local, nodes: 2}
  trainyard:jobs:
    - {name: mine, script: ./train.py, data: ./flowers, hosts: 2, resources: {cpu: 200m, memory: 1Gi}}
    - {name: other, script: ./train.py, data: ./ignored/data, resources: {cpu: 200m, memory: 1Gi}}
"""


@pytest.fixture
def user_project(tmp_path: Path) -> Path:
    """Return a user's project in a subfolder of a git repository. Git tracks some of its files and ignores others."""
    folder = tmp_path / "team" / "flowers-project"
    files = {"Pulumi.mine.yaml": USER_STACK, "train.py": "import table\n", "table.py": "one = 1\n"}
    others = {"flowers/word.txt": "tulip", "ignored/data/word.txt": "rose", "results.json": "{}"}
    for name, text in {**files, **others, ".gitignore": "/ignored/\n/results.json\n/report/\n"}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder.parent / "shared").mkdir()
    (folder.parent / "shared" / "util.py").touch()
    (folder / "common").symlink_to("../shared")
    git(folder.parent, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=before")
    return folder


def test_preview_of_an_unchanged_project_of_a_user_shows_no_change(user_project: Path) -> None:
    found = preview(user_project)
    assert "unchanged." in found
    assert not [word for word in ("Update", "Create", "REPLACE", "DELETE", "compared:") if word in found]


@pytest.mark.parametrize("name", ["train.py", "table.py"])
def test_preview_of_an_edited_file_of_a_users_project_replaces_its_jobs(user_project: Path, name: str) -> None:
    (user_project / name).write_text("two = 2\n", encoding="utf-8")
    found = preview(user_project)
    assert "- `mine-job`: spec.template" in found.partition("**REPLACE**")[2]
    assert "compared:" not in found


def test_preview_without_the_script_in_the_base_commit_compares_only_the_settings(user_project: Path) -> None:
    git(user_project, "rm", "--quiet", "--cached", "train.py")
    git(user_project, "commit", "--quiet", "--message=without the script")
    found = preview(user_project)
    assert "Only the settings are compared: the project before the change cannot be read" in found
    assert "train.py" in found
