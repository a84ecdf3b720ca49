"""Commands on machines and for users that cannot run the local cluster: they stop before they create anything."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from commands.environment import PROJECT
from infra.local.lifecycle import check_machine
from infra.local.settings import stack_cluster
from infra.make_command import sudo_command

REMEDY = "use platform.kind kubeconfig with an existing cluster"
SMALL_DISK = (
    "mount -t tmpfs -o size=16m tmpfs /mnt && export XDG_CACHE_HOME=/mnt UV_CACHE_DIR=/mnt/uv && "
    '"$@" && exit; ls -A /mnt; exit 1'
)
WITH_SMALL_DISK = ["unshare", "--mount", "sh", "-c", SMALL_DISK, "sh"]
FULL_DISK = "disk: 0.0 GB are free in /mnt, 40 GB are needed; delete files, or set XDG_CACHE_HOME"


@pytest.mark.parametrize(
    ("module", "machine", "messages"),
    [
        (
            "commands.up",
            ["unshare", "--user"],
            ["user 65534 cannot create namespaces and cgroups", "sudo make up", REMEDY],
        ),
        (
            "commands.up",
            ["setarch", "i686"],
            ["this machine is Linux on i686", "needs Linux on x86_64 or aarch64", REMEDY],
        ),
        ("commands.up", WITH_SMALL_DISK, [FULL_DISK]),
        ("setup", WITH_SMALL_DISK, [FULL_DISK]),
    ],
    ids=["no root", "unsupported system", "full disk", "set-up on full disk"],
)
def test_command_on_incapable_machine_is_rejected_with_remedy(
    module: str, machine: list[str], messages: list[str]
) -> None:
    environment = {**os.environ, "STACK": "local"}
    done = subprocess.run(
        [*machine, sys.executable, "-m", module],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout == ""
    for each in messages:
        assert each in done.stderr


def test_check_machine_without_root_names_command_of_stack() -> None:
    code = "from tests.local.test_incapable_machine import print_problems; print_problems()"
    done = subprocess.run(
        ["unshare", "--user", sys.executable, "-c", code],
        cwd=PROJECT,
        env={**os.environ, "STACK": "other", "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert "(`sudo make up STACK=other`)" in done.stdout


def test_sudo_command_has_the_path_of_trainyard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "trainyard"
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("STACK", "local")
    monkeypatch.setenv("TRAINYARD_COMMAND", "trainyard")
    assert sudo_command("up") == f"`sudo {program} up`"


@pytest.mark.parametrize("is_on_path", [True, False])
def test_root_check_of_trainyard_names_a_command_that_sudo_finds(is_on_path: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copy(PROJECT / "setup" / "root", folder)
        folder.chmod(0o777)
        # Without folders of this checkout, which another user may not be allowed to read.
        path = "/usr/sbin:/usr/bin:/sbin:/bin"
        if is_on_path:
            (folder / "trainyard").touch(0o755)
            path = f"{name}:{path}"
        done = subprocess.run(
            ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(folder / "root"), "setup"],
            env={"PATH": path, "TRAINYARD_COMMAND": "trainyard"},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        program = f"{name}/trainyard" if is_on_path else shutil.which("trainyard", path=path) or "trainyard"
        assert f"(`sudo {program} setup`)" in done.stderr
        assert done.returncode == 1


def print_problems() -> None:
    """Print the reasons why this machine cannot run a local cluster."""
    print(*check_machine(stack_cluster(str(PROJECT), "other")), sep="\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["up"], "`sudo make up STACK=local`"),
        (["down"], "`sudo make down STACK=local`"),
        (["status"], "`sudo make status STACK=local`"),
        (["setup"], "`sudo make setup`"),
    ],
)
def test_make_without_root_is_rejected_and_creates_nothing(words: list[str], message: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # Any later step of these commands would fail without the rest of the checkout.
        for file in ("Makefile", "Pulumi.local.yaml", "setup/root"):
            (folder / file).parent.mkdir(exist_ok=True)
            shutil.copy(PROJECT / file, folder / file)
        folder.chmod(0o777)
        as_other_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        done = subprocess.run(
            [*as_other_user, "make", *words],
            cwd=folder,
            env={"PATH": os.environ["PATH"], "HOME": name},
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert message in done.stderr
        assert done.returncode != 0
        assert sorted(each.name for each in folder.iterdir()) == ["Makefile", "Pulumi.local.yaml", "setup"]


def test_make_without_root_runs_for_cloud_stack(tmp_path: Path) -> None:
    (tmp_path / "setup").mkdir()
    shutil.copy(PROJECT / "setup" / "root", tmp_path / "setup")
    (tmp_path / "Pulumi.dev.yaml").write_text("# kind: local\nconfig: {trainyard:platform: {kind: gke}}\n", "utf-8")
    tmp_path.chmod(0o755)
    words = ["unshare", "--user", str(tmp_path / "setup" / "root"), "up", "dev"]
    subprocess.run(words, check=True, timeout=60)
