"""Spells the make commands that messages advise, for the stack that the reader works on."""

from __future__ import annotations

import os

DEFAULT_STACK = "local"
"""The stack of `make` without `STACK=`; the Makefile has the same default."""


def make_command(target: str, **variables: str) -> str:
    """Return the command for a target in backquotes: `make down STACK=other`.

    The stack is $STACK, which make exports. `variables` are variables of make; one without a value is left out.
    """
    named = {"STACK": os.environ.get("STACK", ""), **variables}
    if named["STACK"] == DEFAULT_STACK:
        named["STACK"] = ""
    words = [f"{name}={value}" for name, value in named.items() if value]
    return f"`{' '.join(['make', target, *words])}`"
