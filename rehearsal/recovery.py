"""What people do after an update that died: free the stack, and adopt what the cloud went on to make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def recover(pulumi: Callable[..., bool], exported: Callable[[], dict[str, Any]]) -> bool:
    """Make the stack ready for its next `up`; False where that fails."""
    pulumi("cancel", "--yes", quiet=True)
    pending = [each for each in exported().get("pending_operations") or [] if each["type"] == "creating"]
    return not pending
