"""Object stores for tests: a GCS server from its Go module, and an S3 server in a Python environment of its own."""

from __future__ import annotations

import subprocess
from pathlib import Path

from setup import go_programs

PROJECT = Path(__file__).resolve().parents[1]
GCS = go_programs.GoProgram(
    module="fake-gcs-server", package="github.com/fsouza/fake-gcs-server", binary="fake-gcs-server"
)
S3_ENVIRONMENT = ".venv-stores"
S3_REQUIREMENTS = "tests/stores/requirements.txt"


def gcs_server() -> Path:
    """The GCS server's program, built where it is not there yet."""
    if not GCS.is_built():
        go_programs.build_all([GCS])
    return GCS.folder / GCS.binary


def s3_server() -> Path:
    """The S3 server's program, installed where it is not there yet."""
    subprocess.run([str(PROJECT / "setup" / "python"), S3_ENVIRONMENT, S3_REQUIREMENTS], check=True)
    return PROJECT / S3_ENVIRONMENT / "bin" / "moto_server"


if __name__ == "__main__":
    for server in (gcs_server(), s3_server()):
        assert server.exists(), server
