"""Provisions the operators that a stack's jobs need on its platform."""

from __future__ import annotations

import pulumi

from infra.platform import Platform


def install_operators(names: frozenset[str], platform: Platform) -> list[pulumi.Resource]:
    """Install operators on the platform. Return the resources that jobs must wait for; none without operators.

    Raises ValueError without set-up.
    """
    if not names:
        return []
    # Not needed by most stacks, and slow to import.
    from infra.operators.operators import Operators, OperatorsArgs

    args = OperatorsArgs(needed=names, images=platform.operator_images, after=platform.before_pods())
    return [Operators("operators", args, platform.resource_options())]
