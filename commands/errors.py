"""Errors of commands that work on a stack. Each message says what to do."""

from __future__ import annotations


class PulumiFailed(RuntimeError):
    """A `pulumi` command failed. Its own error is on the screen or in the message."""


class StackBusy(PulumiFailed):
    """Another command works on the stack, or may do so."""


class StateBroken(PulumiFailed):
    """The state of the stack cannot be read, and it has no whole copy."""
