"""`make shell`: Pulumi and kubectl there are at the stack, so that commands need not name it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from commands.environment import PROJECT

WITH_A_CLUSTER = {
    "version": 3,
    "deployment": {
        "manifest": {"time": "2026-01-01T00:00:00Z", "magic": "", "version": ""},
        "resources": [
            {
                "urn": "urn:pulumi:tests::trainyard::pulumi:pulumi:Stack::trainyard-tests",
                "type": "pulumi:pulumi:Stack",
                "outputs": {"kubeconfig_path": "/clusters/mine.kubeconfig"},
            }
        ],
    },
}


def said(folder: Path, *commands: str) -> list[str]:
    """What the shell of a stack whose state is in `folder` prints for commands."""
    settings = {
        "PULUMI_BACKEND_URL": f"file://{folder}",
        "PULUMI_CONFIG_PASSPHRASE": "for tests",
        "SHELL": "/bin/sh",
        "STACK": "tests",
    }
    done = subprocess.run(
        [sys.executable, "-m", "commands.shell"],
        cwd=PROJECT,
        env={**{name: value for name, value in os.environ.items() if name != "KUBECONFIG"}, **settings},
        input="\n".join(commands),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    return done.stdout.splitlines()


def test_pulumi_is_at_the_stack(tmp_path: Path) -> None:
    assert said(tmp_path, "pulumi stack --show-name")[-1] == "tests"


def test_kubectl_is_at_the_stacks_cluster(tmp_path: Path) -> None:
    state = tmp_path / "deployment.json"
    state.write_text(json.dumps(WITH_A_CLUSTER), encoding="utf-8")
    backend = tmp_path / "backend"
    backend.mkdir()
    said(backend, f"pulumi stack import --file {state}")
    assert said(backend, "echo $KUBECONFIG")[-1] == "/clusters/mine.kubeconfig"
