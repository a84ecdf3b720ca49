"""`make shell`: Pulumi there is at the stack, so that commands need not name it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from commands.environment import PROJECT


def test_pulumi_is_at_the_stack(tmp_path: Path) -> None:
    settings = {
        "PULUMI_BACKEND_URL": f"file://{tmp_path}",
        "PULUMI_CONFIG_PASSPHRASE": "for tests",
        "SHELL": "/bin/sh",
        "STACK": "tests",
    }
    done = subprocess.run(
        [sys.executable, "-m", "commands.shell"],
        cwd=PROJECT,
        env={**os.environ, **settings},
        input="pulumi stack --show-name",
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert done.stdout.splitlines()[-1] == "tests"
