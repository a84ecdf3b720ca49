"""Random small shifts, turns and scalings of a whole batch of images at once."""

from __future__ import annotations

import math

import torch
from torch.nn import functional

from trainer.data.batch import to_device
from trainer.data.sampler import Share

MAX_DEGREES = 10.0
MAX_PIXELS = 2.0
MAX_SCALE = 0.1
SEEDS = 2**64
"""Number of seeds that torch has."""


def distort(images: torch.Tensor, share: Share, *, seed: int) -> torch.Tensor:
    """Shift, rotate and scale each image by its own random amount.

    The amounts depend only on the seed and the sample's place in the epoch. They are the same for any number of ranks
    and after a restart.
    """
    place = (seed * 1_000_003 + share.epoch) * 1_000_003 + share.position
    generator = torch.Generator().manual_seed(place % SEEDS)
    amounts = torch.rand(share.total, 4, generator=generator)[share.offset : share.offset + len(images)] * 2 - 1
    angle = amounts[:, 0] * math.radians(MAX_DEGREES)
    scale = 1 + amounts[:, 1] * MAX_SCALE
    shift = amounts[:, 2:] * (2 * MAX_PIXELS / images.shape[-1])
    cosine, sine = angle.cos() * scale, angle.sin() * scale
    rows = torch.stack([cosine, -sine, shift[:, 0], sine, cosine, shift[:, 1]], dim=1).view(-1, 2, 3)
    grid = functional.affine_grid(to_device(rows, images.device), list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, padding_mode="border", align_corners=False)
