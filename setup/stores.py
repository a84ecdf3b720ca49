"""Object stores of tests and rehearsals: an S3 server in a separate Python environment, and fake-gcs-server."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from setup.go_programs import GoProgram

PROJECT = Path(__file__).resolve().parents[1]
ENVIRONMENT = ".venv-stores"
REQUIREMENTS = "images/stores/requirements.txt"
GCS_SERVER = GoProgram(module="fake-gcs-server", package="github.com/fsouza/fake-gcs-server", binary="fake-gcs-server")


def s3_server() -> Path:
    """Return the S3 server's program. Installs it if it is missing, with progress on standard error."""
    words = [str(PROJECT / "setup" / "python"), ENVIRONMENT, REQUIREMENTS]
    subprocess.run(words, cwd=PROJECT, check=True, stdout=sys.stderr)
    return PROJECT / ENVIRONMENT / "bin" / "moto_server"


def gcs_server() -> Path:
    """Return the program of fake-gcs-server, which set-up builds."""
    return GCS_SERVER.folder / GCS_SERVER.binary
