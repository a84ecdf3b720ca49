"""`make check`: check format, types and imports, run linters, and search for secrets and known vulnerabilities."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from commands.environment import PROJECT

BIN = Path(sys.executable).parent
WORKFLOWS = sorted((PROJECT / ".github" / "workflows").glob("*.yml"))
TYPED_PATHS = (
    "infra",
    "policy",
    "workloads",
    "trainer",
    "setup",
    "settings",
    "simulation",
    "stack",
    "commands",
    "bench",
    "docs",
    "images/layer",
    "images/stores",
    "trainyard",
    "tests",
    "__main__.py",
)

DISABLED_PLUGINS = ("KeywordDetector", "Base64HighEntropyString", "HexHighEntropyString")
"""Plugins of detect-secrets that would report hashes and variable names as secrets."""


def tracked(*patterns: str) -> list[str]:
    """Return the tracked files that match any of git's `patterns`, or all tracked files without `patterns`."""
    done = subprocess.run(["git", "ls-files", "--", *patterns], cwd=PROJECT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def shell_scripts() -> list[str]:
    """Return the tracked files, without a suffix or with `.sh`, whose first line names a shell."""
    found = []
    for name in tracked():
        path = PROJECT / name
        if path.is_file() and path.suffix in ("", ".sh"):
            with path.open("rb") as file:
                first = file.readline()
            if first.startswith(b"#!") and first.rstrip().endswith((b"/sh", b"bash")):
                found.append(name)
    return found


def checks() -> list[tuple[str, list[str]]]:
    """Return the name and command of each check, except the audit."""
    return [
        ("format", [str(BIN / "ruff"), "format", "--check", "."]),
        ("lint", [str(BIN / "ruff"), "check", "."]),
        ("types", [str(BIN / "mypy"), *TYPED_PATHS]),
        ("import contracts", [str(BIN / "lint-imports")]),
        ("shell scripts", [str(BIN / "shellcheck"), *shell_scripts()]),
        ("workflows", ["go", "-C", "setup/go/actionlint", "tool", "actionlint", *map(str, WORKFLOWS)]),
        ("workflows' security", [str(BIN / "zizmor"), "--offline", ".github/workflows"]),
        ("Dockerfiles", [str(BIN / "hadolint"), *tracked("*Dockerfile*")]),
        (
            "secrets",
            [
                str(BIN / "detect-secrets-hook"),
                "--no-verify",
                *(f"--disable-plugin={each}" for each in DISABLED_PLUGINS),
                # The excluded test contains example tokens of every form.
                *(each for each in tracked(":!tests/unit/test_secret_scan.py") if (PROJECT / each).is_file()),
            ],
        ),
    ]


def audit() -> bool:
    """Print the findings of pip-audit. Return True if it works and finds no vulnerability."""
    print("-- vulnerabilities", flush=True)
    is_safe = True
    for name in tracked("*requirements*.txt"):
        words = [str(BIN / "pip-audit"), "--disable-pip", "--require-hashes", "--format=json", f"--requirement={name}"]
        done = subprocess.run(words, cwd=PROJECT, capture_output=True, text=True, check=False)
        if not done.stdout.startswith("{"):
            print(f"{name}: pip-audit failed: {done.stderr.strip()}")
            is_safe = False
            continue
        vulnerable, skipped, audited = audit_results(json.loads(done.stdout))
        for each in vulnerable:
            print(f"{name}: {each}")
            is_safe = False
        if skipped:
            print(f"{name}: NOT AUDITED: pip-audit skipped {skipped} of {skipped + audited} packages")
    return is_safe


def audit_results(answer: dict[str, Any]) -> tuple[list[str], int, int]:
    """Return the vulnerable packages in pip-audit's answer, and the numbers of skipped and of audited packages."""
    audited = [each for each in answer["dependencies"] if "skip_reason" not in each]
    found = [
        f"{each['name']} {each['version']} has {vulnerability['id']}; "
        f"fixed in {', '.join(vulnerability['fix_versions']) or 'no version yet'}"
        for each in audited
        for vulnerability in each["vulns"]
    ]
    return found, len(answer["dependencies"]) - len(audited), len(audited)


def main() -> int:
    """Run every check, even after a failure. Return 1 if any fails."""
    failed = [] if audit() else ["vulnerabilities"]
    for name, words in checks():
        if not shutil.which(words[0]):
            remedy = "install it, or remove .venv-dev and run `make check` again"
            print(f"-- {name}: {words[0]} is missing; {remedy}", file=sys.stderr)
            failed.append(name)
            continue
        print(f"-- {name}", flush=True)
        if subprocess.run(words, cwd=PROJECT, check=False).returncode != 0:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all checks passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
