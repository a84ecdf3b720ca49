"""Requirements files: lists of Python packages in the project that a job gets in addition to its image. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from settings.problem import Invalid
from settings.secret_scan import token_kind

MAX_BYTES = 64_000
"""Maximum size. A list with hashes of hundreds of packages is smaller."""
REMEDY = "write a path relative to the folder of the stack's file, such as requirements.txt"
_OTHER_FILE = re.compile(r"-[rce]|--(requirement|constraint|editable)\b|\.{0,2}/|\.$|file:|.*@\s*file:")
"""Line that refers to another file, which is not in the build of the image."""
_COMMENT = re.compile(r"(^|\s)#.*")
_OPTION = re.compile(r"\s-")
"""Beginning of an option after a package, such as `--hash`."""
_PACKAGE = re.compile(r"[A-Za-z0-9]")
"""Beginning of a line with a package. Other lines are options."""


def read(requirements: str, project: Path) -> str:
    """Return the content of a requirements file. Raises Invalid with the problem of the file and the remedy."""
    if "://" in requirements or requirements.startswith("~"):
        raise Invalid("requirements_url", f"is not the path of a file of the project; {REMEDY}")
    path = project / requirements
    if not path.resolve().is_relative_to(project.resolve()):
        raise Invalid("requirements_outside", f"is outside of {project}; copy the file there, and {REMEDY}")
    try:
        content = path.read_bytes()
        text = content.decode()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise Invalid("requirements_absent", f"is not a file of {project}; {REMEDY}") from error
    except OSError as error:
        raise Invalid(
            "requirements_unreadable", f"cannot be read ({error.strerror}); make the file readable"
        ) from error
    except UnicodeDecodeError as error:
        raise Invalid(
            "requirements_not_utf8", "is not UTF-8 text; write one package a line, such as einops==0.8.1"
        ) from error
    if len(content) > MAX_BYTES:
        raise Invalid(
            "requirements_too_large",
            f"has {len(content):,} bytes; at most {MAX_BYTES:,} are allowed; list fewer packages",
        )
    _check_lines(text)
    return text


def _check_lines(text: str) -> None:
    lines = [_COMMENT.sub("", line).strip() for line in text.splitlines()]
    for number, line in enumerate(lines, start=1):
        if "\0" in line:
            raise Invalid("requirements_control_character", f"line {number} contains a control character; remove it")
        if _OTHER_FILE.match(line):
            raise Invalid(
                "requirements_other_file",
                f"line {number} refers to another file, which is not in the image; write packages instead",
            )
    if noun := token_kind(text):
        raise Invalid(
            "requirements_secret",
            f"contains {noun} in plain text; install the package in an image of your own (`image`)",
        )
    for number, line in _packages(lines):
        _check_package(number, line)
    if not any(_PACKAGE.match(line) for line in lines):
        raise Invalid("requirements_empty", "lists no package; add one a line, such as einops==0.8.1, or remove it")


def _packages(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line with a package, without its options and with the lines that continue it."""
    first, parts = 0, list[str]()
    for number, line in enumerate(lines, start=1):
        first = first if parts else number
        parts.append(line.removesuffix("\\").strip())
        if line.endswith("\\"):
            continue
        text = _OPTION.split(" ".join(parts), maxsplit=1)[0].strip()
        parts.clear()
        # pip also takes URLs and variables, which are checked in the build.
        if _PACKAGE.match(text) and "://" not in text and "${" not in text:
            yield first, text


def _check_package(number: int, line: str) -> None:
    try:
        Requirement(line)
    except InvalidRequirement as error:
        raise Invalid(
            "requirements_syntax",
            f"line {number} is {line[:60]!r}, which is not a package in pip's format; write it as in einops==0.8.1",
        ) from error
