"""Folders of a stack: the checkout with the program, and the user's project with settings, scripts and state."""

from __future__ import annotations

import os
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
"""Folder of the program and its tools."""
PROJECT_VARIABLE = "TRAINYARD_PROJECT"
"""Environment variable with the project's folder. Without it, the checkout is the project."""
STATE_NAME = ".trainyard"
"""Name of a project's folder for its state."""


def project_folder() -> Path:
    """Return the folder with `Pulumi.<stack>.yaml`, the jobs' scripts, and the state in `.trainyard`."""
    found = os.environ.get(PROJECT_VARIABLE)
    return Path(found) if found else CHECKOUT
