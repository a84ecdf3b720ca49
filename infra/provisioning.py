"""Installation of the operators that a stack's jobs need."""

from __future__ import annotations

import pulumi

from infra.platform import Platform


def install_operators(names: frozenset[str], platform: Platform) -> list[pulumi.Resource]:
    """Install operators on the platform. Return the resources that jobs must wait for.

    Raises ValueError if set-up has not run.
    """
    if not names:
        return []
    # Most stacks do not need this module, and its import is slow.
    from infra.operators.operators import Operators, OperatorsArgs

    args = OperatorsArgs(needed=names, images=platform.operator_images, after=platform.before_pods())
    return [Operators("operators", args, platform.resource_options())]
