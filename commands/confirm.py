"""Questions to the user before a command spends money or deletes something."""

from __future__ import annotations

import os
import sys

from commands.exit_status import ExitStatus
from commands.interrupts import CommandError
from infra.make_command import COMMAND_VARIABLE


class NotConfirmed(CommandError):
    """The user answered no, or could not be asked."""

    status = ExitStatus.NOT_CONFIRMED


def confirm(question: str, *, is_confirmed: bool = False) -> None:
    """Ask a question and return if the answer is yes. Raises NotConfirmed otherwise.

    `question` has no question mark. `is_confirmed` answers yes without asking.
    """
    if is_confirmed:
        return
    if not sys.stdin.isatty():
        option = "`--yes`" if os.environ.get(COMMAND_VARIABLE) else "`YES=1`"
        raise NotConfirmed(
            f"{question}? There is no terminal to ask on; nothing was changed; add {option} to answer yes"
        )
    sys.stdout.flush()
    try:
        answer = input(f"{question}? [y/N] ")
    except EOFError:
        answer = ""
    if answer.strip().lower() not in ("y", "yes"):
        raise NotConfirmed("nothing was changed")
