"""Exit statuses of the command line. docs/commands.md has them as a table."""

from __future__ import annotations

from enum import IntEnum


class ExitStatus(IntEnum):
    """Exit status of a command."""

    SUCCESS = 0
    FAILURE = 1
    USAGE = 2
    NOT_CONFIRMED = 3
    HANGUP = 129
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS: dict[ExitStatus, str] = {
    ExitStatus.SUCCESS: "the command succeeded; `up`, `rerun`, `resume` and `logs`: all followed jobs are complete",
    ExitStatus.FAILURE: "the command failed, a followed job failed, `preview` found a reason not to merge, `doctor` "
    "found invalid settings, `verify-empty` found leftovers, or a program such as `head` closed the output",
    ExitStatus.USAGE: "wrong arguments, or settings that `preview` cannot read",
    ExitStatus.NOT_CONFIRMED: "a question was answered with no, or could not be asked: no terminal and no `--yes`",
    ExitStatus.HANGUP: "the terminal closed (SIGHUP)",
    ExitStatus.INTERRUPTED: "Ctrl-C (SIGINT)",
    ExitStatus.TERMINATED: "the command was terminated (SIGTERM)",
}
