"""The object stores of tests and rehearsals: an S3 server in a Python environment of its own, and Google's in Go."""

from __future__ import annotations

import subprocess
from pathlib import Path

from setup.go_programs import GoProgram

PROJECT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ".venv-stores"
REQUIREMENTS = "images/stores/requirements.txt"
GCS_SERVER = GoProgram(module="fake-gcs-server", package="github.com/fsouza/fake-gcs-server", binary="fake-gcs-server")


def s3_server() -> Path:
    """The S3 server's program, installed where it is not there yet."""
    subprocess.run([str(PROJECT / "setup" / "python"), ENVIRONMENT, REQUIREMENTS], cwd=PROJECT, check=True)
    return PROJECT / ENVIRONMENT / "bin" / "moto_server"


def gcs_server() -> Path:
    """The program of Google's, which set-up builds."""
    return GCS_SERVER.folder / GCS_SERVER.binary
