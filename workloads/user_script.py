"""User scripts: files of the checkout that are copied into the pods unchanged. They need no image of their own."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from settings.problem import Invalid

HERE = ("./", "../")
"""Prefixes of the path of a file in the checkout. Any other path is in the image or in a mounted bucket."""
FOLDER_IN_POD = "/opt/script"
MOST_BYTES = 900_000
"""Maximum size of a script. A ConfigMap holds 1 MiB with its metadata:
https://kubernetes.io/docs/concepts/configuration/configmap/"""
FILE_NAME = re.compile(r"(?!\.\.)[-._a-zA-Z0-9]{1,253}")
"""Valid keys of a ConfigMap: https://kubernetes.io/docs/concepts/configuration/configmap/"""
OTHER_FILE = re.compile(r"\.(?!(py|pyc|pyz|pyw|zip|whl|egg)$)[A-Za-z]+$")
"""Suffixes of files that Python cannot run. A name without a suffix may be a folder with a __main__.py."""
CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
SCRIPT_REMEDY = "write a path in the image, such as /opt/train.py, or ./train.py for a file of this checkout"


@dataclass(frozen=True, kw_only=True)
class UserScript:
    """Script of a user and its ConfigMap."""

    name: str
    """Name of the file."""
    text: str
    """Content of the file."""

    def config_map(self, job: str) -> str:
        """Return the name of the job's ConfigMap. It depends on the content, so that a new script replaces its pods."""
        return f"{job}-script-{hashlib.sha256(f'{self.name} {self.text}'.encode()).hexdigest()[:8]}"


def is_here(script: str) -> bool:
    """Return True if a script is a file of the checkout."""
    return script.startswith(HERE)


def path_in_pod(script: str) -> str:
    """Return the path of a script in its pods."""
    return f"{FOLDER_IN_POD}/{PurePosixPath(script).name}" if is_here(script) else script


def wrong_path(script: str) -> Invalid | None:
    """Return the error in a script's path, or None if it may be one of a Python file."""
    if "://" in script:
        return Invalid("url", f"is a URL, and Python opens files; {SCRIPT_REMEDY}")
    if script.startswith("-"):
        return Invalid("option", f"is an option, and what runs is a file; {SCRIPT_REMEDY}")
    if script.startswith("~"):
        return Invalid("home", f"has a home directory that no shell fills in; {SCRIPT_REMEDY}")
    if CONTROL.search(script):
        return Invalid("control_character", f"has a control character; {SCRIPT_REMEDY}")
    if not is_here(script):
        if re.search(r"\s", script):
            return Invalid("blank", f"has a blank; {SCRIPT_REMEDY}, and its arguments as `args`")
        if OTHER_FILE.search(script):
            return Invalid("other_file", f"is no Python file, and Python runs it; {SCRIPT_REMEDY}")
        return None
    name = PurePosixPath(script).name
    if name.startswith("..") or not FILE_NAME.fullmatch(name):
        return Invalid(
            "file_name",
            "must have a file name that pods can be given, of at most 253 letters, digits, '-', '_' and '.'; rename it "
            "to train.py for example, and write arguments as `args`",
        )
    if not name.endswith(".py"):
        return Invalid("not_python", f"is no Python file, whose name ends in .py; {SCRIPT_REMEDY}")
    return None


def remedy(script: str, checkout: Path) -> str | None:
    """Return a path in the image as a path of the checkout if that file exists, else None."""
    path = checkout / script
    if not path.is_file() or not path.resolve().is_relative_to(checkout.resolve()):
        return None
    return f"./{path.resolve().relative_to(checkout.resolve())}"


def read(script: str, checkout: Path) -> UserScript:
    """Return the script. Raises Invalid with the problem of the file and the remedy."""
    path = checkout / script
    if not path.resolve().is_relative_to(checkout.resolve()):
        raise Invalid("outside", f"is outside of {checkout}; copy the file there, or build an image with it")
    try:
        content = path.read_bytes()
        text = content.decode()
    except (FileNotFoundError, IsADirectoryError) as error:
        raise Invalid(
            "absent", f"is not a file of {checkout}; write its path from there, or one in the image"
        ) from error
    except OSError as error:
        raise Invalid("unreadable", f"cannot be read ({error.strerror}); give yourself the right to read it") from error
    except UnicodeDecodeError as error:
        raise Invalid("not_utf8", "is not UTF-8 text; save it as UTF-8") from error
    if len(content) > MOST_BYTES:
        raise Invalid(
            "too_large", f"has {len(content):,} bytes, and at most {MOST_BYTES:,} go into a pod; build an image with it"
        )
    return UserScript(name=path.name, text=text)
