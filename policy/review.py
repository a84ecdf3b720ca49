"""What a stack's own settings say about the rules, as the rules take them."""

from __future__ import annotations

from pathlib import Path

from policy.config import PolicyConfig
from policy.rules import Settings

PROJECT = Path(__file__).resolve().parents[1]


def settings_from(config: PolicyConfig) -> Settings:
    """The settings in plain values."""
    return Settings(
        levels=dict(config.levels),
        exceptions={(each.rule, each.resource): each.reason for each in config.exceptions},
    )


def settings_of(stack: str | None) -> Settings:
    """The settings in `Pulumi.<stack>.yaml`; the rules' own where no stack is named."""
    if not stack:
        return Settings()
    # Reads the whole stack, which reads this package.
    from stack_config import load_file

    return settings_from(load_file(PROJECT / f"Pulumi.{stack}.yaml").policy)
