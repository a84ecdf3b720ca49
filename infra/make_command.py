"""Spells the make commands that messages advise, for the stack that the reader works on."""

from __future__ import annotations

import os

DEFAULT_STACK = "local"
"""The stack of `make` without `STACK=`; the Makefile has the same default."""


def make_command(target: str, **variables: str) -> str:
    """Return the command for a target in backquotes: `make down STACK=other`.

    `variables` are further variables of make; those with an empty value are left out. The stack is $STACK, which
    make exports.
    """
    stack = os.environ.get("STACK") or DEFAULT_STACK
    named = {"STACK": "" if stack == DEFAULT_STACK else stack, **variables}
    words = [f"{name}={value}" for name, value in named.items() if value]
    return f"`{' '.join(['make', target, *words])}`"
