"""Tensors of which each rank has a part (torch's DTensor), without an import of torch.distributed.tensor."""

from __future__ import annotations

from typing import Any, cast

import torch


def is_sharded(tensor: torch.Tensor) -> bool:
    """Return True if each rank has a part of this tensor."""
    return hasattr(tensor, "placements")


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a tensor: all of it, unless it is sharded."""
    return cast("Any", tensor).to_local() if is_sharded(tensor) else tensor


def with_local_part(like: torch.Tensor, local: torch.Tensor) -> torch.Tensor:
    """Return `local` as this rank's part of a tensor that is sharded like another one. Returns it alone if none is.

    The part can be on another device than the other tensor's, unlike with DTensor.from_local.
    """
    if not is_sharded(like):
        return local
    from torch.distributed.tensor import DTensor

    make: Any = DTensor
    found: torch.Tensor = make(local, cast("Any", like)._spec, requires_grad=False)
    return found
