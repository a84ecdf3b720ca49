"""User scripts: Python files of the checkout that a ConfigMap copies into the pods, without an image build."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from settings.problem import Invalid

CHECKOUT_PREFIXES = ("./", "../")
"""Prefixes of the path of a file in the checkout. Any other path is in the image or in a mounted bucket."""
FOLDER_IN_POD = "/opt/script"
MAX_BYTES = 900_000
"""Maximum size of a script. A ConfigMap holds 1 MiB with its metadata:
https://kubernetes.io/docs/concepts/configuration/configmap/"""
FILE_NAME = re.compile(r"(?!\.\.)[-._a-zA-Z0-9]{1,253}")
"""Valid keys of a ConfigMap: https://kubernetes.io/docs/concepts/configuration/configmap/"""
NOT_PYTHON_SUFFIX = re.compile(r"\.(?!(py|pyc|pyz|pyw|zip|whl|egg)$)[A-Za-z]+$")
"""Suffixes of files that Python cannot run. A name without a suffix may be a folder with a __main__.py."""
CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
SCRIPT_REMEDY = "write a path in the image, such as /opt/train.py, or ./train.py for a file of this checkout"


@dataclass(frozen=True, kw_only=True)
class UserScript:
    """Script of a user."""

    name: str
    """Name of the file."""
    text: str
    """Content of the file."""

    def config_map(self, job: str) -> str:
        """Return the name of the job's ConfigMap. It changes with the content, so that an edit replaces the pods."""
        return f"{job}-script-{hashlib.sha256(f'{self.name} {self.text}'.encode()).hexdigest()[:8]}"


def is_in_checkout(script: str) -> bool:
    """Return True if a script is a file of the checkout."""
    return script.startswith(CHECKOUT_PREFIXES)


def path_in_pod(script: str) -> str:
    """Return the path of a script in its pods."""
    return f"{FOLDER_IN_POD}/{PurePosixPath(script).name}" if is_in_checkout(script) else script


def path_error(script: str) -> Invalid | None:
    """Return the error in a script's path, or None if a Python file can have this path."""
    if "://" in script:
        return Invalid("url", f"is a URL; only paths of files are allowed; {SCRIPT_REMEDY}")
    if script.startswith("-"):
        return Invalid("option", f"is an option, not a path; {SCRIPT_REMEDY}")
    if script.startswith("~"):
        return Invalid("home", f"starts with ~, which no shell expands here; {SCRIPT_REMEDY}")
    if CONTROL_CHARACTERS.search(script):
        return Invalid("control_character", f"contains a control character; {SCRIPT_REMEDY}")
    if not is_in_checkout(script):
        if re.search(r"\s", script):
            return Invalid("blank", f"contains a space; {SCRIPT_REMEDY}, and its arguments as `args`")
        if NOT_PYTHON_SUFFIX.search(script):
            return Invalid("other_file", f"is not a Python file; {SCRIPT_REMEDY}")
        return None
    name = PurePosixPath(script).name
    if name.startswith("..") or not FILE_NAME.fullmatch(name):
        return Invalid(
            "file_name",
            "must have a file name of at most 253 letters, digits, '-', '_' and '.'; rename it, for example to "
            "train.py, and write arguments as `args`",
        )
    if not name.endswith(".py"):
        return Invalid("not_python", f"must have a name that ends in .py; {SCRIPT_REMEDY}")
    return None


def checkout_path(script: str, checkout: Path) -> str | None:
    """Return the path `./...` of a script if it is a file of the checkout, else None."""
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
            "absent", f"is not a file of {checkout}; write a path relative to that folder, or a path in the image"
        ) from error
    except OSError as error:
        raise Invalid("unreadable", f"cannot be read ({error.strerror}); make the file readable") from error
    except UnicodeDecodeError as error:
        raise Invalid("not_utf8", "is not UTF-8 text; save it as UTF-8") from error
    if len(content) > MAX_BYTES:
        raise Invalid(
            "too_large", f"has {len(content):,} bytes; at most {MAX_BYTES:,} are allowed; build an image with it"
        )
    return UserScript(name=path.name, text=text)
