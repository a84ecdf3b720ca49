"""Install the packages of a requirements file into an image's environment, without changing an installed package.

This script runs in the build of the image, with the image's Python and uv. It uses only the standard library.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

REQUIREMENTS = Path("/opt/trainyard/layer/requirements.txt")
CONFLICT_PREFIX = "requirements: "
"""Prefix of the line with the reason of a failure, which infra.local.trainer_image finds in the build's output."""
_CHANGE = re.compile(r"^ ([-+]) ([A-Za-z0-9._-]+)==(\S+)", re.MULTILINE)
"""Line in the output of `uv pip install --dry-run`: a package that uv would remove (-) or add (+)."""


def changed_packages(plan: str) -> list[tuple[str, str, str]]:
    """Return name, installed version and required version of each package that uv's plan would change."""
    versions: dict[str, dict[str, str]] = {"-": {}, "+": {}}
    for sign, name, version in _CHANGE.findall(plan):
        versions[sign][name] = version
    return [
        (name, installed, versions["+"][name]) for name, installed in versions["-"].items() if name in versions["+"]
    ]


def conflict(changes: list[tuple[str, str, str]], requirements: str) -> str:
    """Return a message about one of the changes, with the package and both versions.

    Prefer a package that the file names, because the other packages are only dependencies.
    """
    named = {re.split(r"[^A-Za-z0-9._-]", line.strip(), maxsplit=1)[0] for line in requirements.splitlines()}
    named = {_normal(name) for name in named}
    name, installed, required = min(changes, key=lambda change: _normal(change[0]) not in named)
    who = "the file needs" if _normal(name) in named else "the file's packages need"
    return (
        f"{CONFLICT_PREFIX}{name}: {who} {required}, but the image has {installed}, which Trainyard does not change; "
        f"allow {name} {installed} in the file, or build an image of your own"
    )


def _normal(name: str) -> str:
    """Return a package's name in the form of PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def uv(*words: str) -> subprocess.CompletedProcess[str]:
    """Run a uv command in the image's environment. Return its result, with standard error in the output."""
    command = ["uv", "pip", *words, "--python", sys.executable]
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


def main() -> int:
    """Install the packages. Return 1, with the reason in the last line, if they do not fit the image."""
    if not REQUIREMENTS.read_text(encoding="utf-8"):
        return 0
    frozen = uv("freeze").stdout.splitlines()
    constraints = REQUIREMENTS.with_name("installed.txt")
    constraints.write_text("\n".join(line for line in frozen if "==" in line) + "\n", encoding="utf-8")
    wanted = ("--requirement", str(REQUIREMENTS))
    installed = uv("install", "--compile-bytecode", "--constraint", str(constraints), *wanted)
    print(installed.stdout, flush=True)
    if installed.returncode == 0:
        return 0
    plan = uv("install", "--dry-run", *wanted)
    if plan.returncode == 0 and (changes := changed_packages(plan.stdout)):
        print(conflict(changes, REQUIREMENTS.read_text(encoding="utf-8")))
    else:
        reason = " ".join(installed.stdout.split())[-600:]
        print(f"{CONFLICT_PREFIX}uv cannot install the packages of the file into the image; uv says: {reason}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
