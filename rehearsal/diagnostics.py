"""Runs Pulumi, and says why it failed from what it printed."""

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
    """Exit status and output of a command, of which each line is said as it comes."""
    lines = []
    with subprocess.Popen(
        words,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A terminal's Ctrl-C reaches this process alone, which kills the other.
        start_new_session=True,
    ) as process:
        try:
            for line in process.stdout or ():
                lines.append(line)
                if say:
                    say(line.removesuffix("\n"))
        except BaseException:
            # Else a rehearsal that is told to end would wait for it.
            process.kill()
            raise
    return process.returncode, "".join(lines)


def errors(output: str) -> list[str]:
    """The errors among the diagnostics, each with its resource, shortened; those of several tries once."""
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
            # Lines of their own say what it is; of a traceback the last.
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
