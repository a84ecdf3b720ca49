"""Formatting of make commands in messages, for the current stack."""

from __future__ import annotations

import os

DEFAULT_STACK = "local"
"""Default stack of `make`, as in the Makefile."""


def make_command(target: str, **variables: str) -> str:
    """Return the command for a target in backquotes, such as `make down STACK=other`.

    The stack is $STACK, which make exports. `variables` are make variables. Empty ones are left out.
    """
    named = {"STACK": os.environ.get("STACK", ""), **variables}
    if named["STACK"] == DEFAULT_STACK:
        named["STACK"] = ""
    words = [f"{name}={value}" for name, value in named.items() if value]
    return f"`{' '.join(['make', target, *words])}`"
