"""The object store for tests: an S3 server in a Python environment of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ".venv-stores"
REQUIREMENTS = "images/stores/requirements.txt"


def s3_server() -> Path:
    """The S3 server's program, installed where it is not there yet."""
    subprocess.run([str(PROJECT / "setup" / "python"), ENVIRONMENT, REQUIREMENTS], cwd=PROJECT, check=True)
    return PROJECT / ENVIRONMENT / "bin" / "moto_server"
