"""Missing or invalid variables of the launcher give an error without a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.exit_codes import BAD_CONFIGURATION

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"RANK": "abc"}, "$RANK is 'abc'; allowed is a number from 0 to 0"),
        ({"WORLD_SIZE": "2", "RANK": "2"}, "$RANK is '2'; allowed is a number from 0 to 1"),
        ({"WORLD_SIZE": "0"}, "$WORLD_SIZE is '0'; allowed is a number from 1 on"),
        ({"WORLD_SIZE": "2", "RANK": "0"}, "$MASTER_ADDR is ''; allowed is the address of rank 0"),
        ({"WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, "$MASTER_PORT is ''"),
        ({"WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "http"}, "$MASTER_PORT is 'http'"),
    ],
)
def test_missing_launcher_variables_are_rejected(variables: dict[str, str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainer", "digits", "--device=cpu"],
        cwd=PROJECT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == BAD_CONFIGURATION, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
