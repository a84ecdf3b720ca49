"""Run a command of a checkout: the one that contains the working directory, else the one of the installation.

The command runs in the checkout's own environment, which has the pinned packages. So this package has no requirements.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NoReturn
from urllib.parse import unquote, urlsplit

CHECKOUT_FILES = ("commands/cli.py", "setup/python", "requirements.txt")
"""Files by which a checkout is recognised."""
START_PROGRAM = "import sys; sys.path[0] = sys.argv.pop(1); from commands.cli import main; sys.exit(main(sys.argv[1:]))"
"""Program that runs a command of a checkout from any working directory. Its first argument is the checkout's path."""


def is_checkout(folder: Path) -> bool:
    """Return True if a folder is a checkout of Trainyard."""
    return all((folder / each).is_file() for each in CHECKOUT_FILES)


def installed_from() -> Path | None:
    """Return the folder that pip or uv installed this package from; None if they recorded no folder.

    https://packaging.python.org/en/latest/specifications/direct-url/
    """
    try:
        record = distribution("trainyard").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    address = urlsplit(json.loads(record)["url"]) if record else None
    return Path(unquote(address.path)) if address and address.scheme == "file" else None


def find_checkout(start: Path) -> Path | None:
    """Return the checkout that contains `start`, else the one that this package was installed from, else None."""
    around = (start, *start.parents)
    installed = installed_from()
    return next((each for each in (*around, *([installed] if installed else [])) if is_checkout(each)), None)


def launch() -> NoReturn:
    """Update the environment of the checkout, and replace this process with the command."""
    try:
        here = Path.cwd()
    except OSError as error:
        reason = "no longer exists" if isinstance(error, FileNotFoundError) else f"cannot be used ({error.strerror})"
        print(f"trainyard: the working directory {reason}; change to another folder", file=sys.stderr)
        sys.exit(2)
    checkout = find_checkout(here)
    if checkout is None:
        installed = installed_from()
        problem = (
            f"{installed} is no longer a checkout of Trainyard" if installed else "it was not installed from a checkout"
        )
        sys.exit(
            f"trainyard: {problem}; in a checkout of Trainyard, run `uv tool install --force .` or `pip install .`"
        )
    done = subprocess.run([checkout / "setup" / "python", ".venv", "requirements.txt"], check=False)
    if done.returncode != 0:
        sys.exit(1)
    # The command unblocks Ctrl-C after its imports. Until then Ctrl-C would print a traceback.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    python = str(checkout / ".venv" / "bin" / "python")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    environment["TRAINYARD_COMMAND"] = "trainyard"
    os.execve(python, [python, "-c", START_PROGRAM, str(checkout), *sys.argv[1:]], environment)
