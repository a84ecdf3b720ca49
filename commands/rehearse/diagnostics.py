"""Run Pulumi, and find the errors in its output."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

MOST_ERRORS = 5
MOST_LETTERS = 400
_BLOCK = re.compile(r"^  (\S.*\)):$")


def run(
    words: Sequence[str], folder: Path, environment: Mapping[str, str], say: Callable[[str], None] | None
) -> tuple[int, str]:
    """Run a command, pass each output line to `say`, and return the exit status and the whole output."""
    lines = []
    with subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Ctrl-C in a terminal must reach only this process, which then kills the child.
        start_new_session=True,
    ) as process:
        try:
            for line in process.stdout or ():
                lines.append(line)
                if say:
                    say(line.removesuffix("\n"))
        except BaseException:
            # Otherwise an interrupted rehearsal would wait for the command to end.
            process.kill()
            raise
    return process.returncode, "".join(lines)


def errors(output: str) -> list[str]:
    """Return the first errors of the diagnostics, each with its resource, shortened and without duplicates."""
    found: dict[str, None] = {}
    resource = ""
    lines = output.partition("\nDiagnostics:\n")[2].splitlines()
    for index, line in enumerate(lines):
        if block := _BLOCK.match(line):
            resource = block[1]
        text = line.strip()
        if not text.startswith("error: ") or text == "error: update failed":
            continue
        if text.endswith(":"):
            # The next lines give the cause; of a traceback, the last line does.
            text = f"{text} {_last_of_block(lines[index + 1 :])}"
        found[f"{resource}: {text.removeprefix('error: ')}"] = None
    return [each if len(each) <= MOST_LETTERS else f"{each[:MOST_LETTERS]}..." for each in [*found][:MOST_ERRORS]]


def _last_of_block(lines: list[str]) -> str:
    last = ""
    for line in lines:
        if not line.startswith("    ") and line.strip():
            break
        last = line.strip() or last
    return last
