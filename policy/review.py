"""Conversion of a stack's `policy` settings to the rules' Settings."""

from __future__ import annotations

from pathlib import Path

from policy.config import PolicyConfig
from policy.rules import Settings

PROJECT = Path(__file__).resolve().parents[1]


def settings_from(config: PolicyConfig) -> Settings:
    """Return the settings as plain values."""
    exceptions = {(exception.rule, exception.resource): exception.reason for exception in config.exceptions}
    return Settings(levels=dict(config.levels), exceptions=exceptions)


def settings_of(stack: str | None) -> Settings:
    """Return the settings in `Pulumi.<stack>.yaml`, or the defaults without a stack."""
    if not stack:
        return Settings()
    # Import here: stack.config imports this package.
    from stack.config import load_file

    return settings_from(load_file(PROJECT / f"Pulumi.{stack}.yaml").policy)
