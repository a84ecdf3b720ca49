"""Formatting of make commands in messages, for the current stack."""

from __future__ import annotations

import os

DEFAULT_STACK = "local"
"""Default stack of `make`, as in the Makefile."""


def make_command(target: str, **variables: str) -> str:
    """Return the command for a target in backquotes, such as `make down STACK=other`.

    The stack is $STACK, which make exports. `variables` are make variables. The command omits empty variables and the
    default stack.
    """
    values = {"STACK": os.environ.get("STACK", ""), **variables}
    if values["STACK"] == DEFAULT_STACK:
        values["STACK"] = ""
    assignments = [f"{name}={value}" for name, value in values.items() if value]
    return f"`{' '.join(['make', target, *assignments])}`"
