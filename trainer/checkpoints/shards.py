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
    """Return a tensor that is sharded like `like`, with `local` as this rank's part. Return `local` if `like` is whole.

    Unlike with DTensor.from_local, `local` may be on another device than `like`.
    """
    if not is_sharded(like):
        return local
    from torch.distributed.tensor import DTensor

    make: Any = DTensor
    found: torch.Tensor = make(local, cast("Any", like)._spec, requires_grad=False)
    return found


def own_part(tensor: torch.Tensor) -> tuple[slice, ...]:
    """Return the place of this rank's part in the whole tensor."""
    if not is_sharded(tensor):
        return tuple(slice(0, size) for size in tensor.shape)
    # Imported here because a rank with whole tensors does not need it.
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    whole: Any = tensor
    shape, offset = compute_local_shape_and_global_offset(whole.shape, whole.device_mesh, whole.placements)
    return tuple(slice(start, start + size) for start, size in zip(offset, shape, strict=True))
