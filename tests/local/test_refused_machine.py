"""`make up` on machines that cannot run the local cluster, each a real one: refused before anything is made."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from commands.environment import PROJECT

REMEDY = "use platform.kind kubeconfig with a cluster that you have"
SMALL_DISK = 'mount -t tmpfs -o size=16m tmpfs /mnt && export XDG_CACHE_HOME=/mnt && "$@" && exit; ls -A /mnt; exit 1'


@pytest.mark.parametrize(
    ("machine", "said"),
    [
        (["unshare", "--user"], ["user 65534 cannot make namespaces and cgroups", "sudo make up", REMEDY]),
        (["setarch", "i686"], ["this machine is Linux on i686", "needs Linux on x86_64 or aarch64", REMEDY]),
        (
            ["unshare", "--mount", "sh", "-c", SMALL_DISK, "sh"],
            ["disk: 0.0 GB are free in /mnt, 30 GB are needed: make room, or set XDG_CACHE_HOME"],
        ),
    ],
    ids=["no root", "unsupported system", "full disk"],
)
def test_a_machine_that_cannot_run_the_cluster_is_told_why_and_what_to_do(machine: list[str], said: list[str]) -> None:
    environment = {**os.environ, "STACK": "local"}
    done = subprocess.run(
        [*machine, sys.executable, "-m", "commands.up"],
        cwd=PROJECT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert done.stdout == ""
    for each in said:
        assert each in done.stderr
