"""How much arithmetic a model costs, and how much a device could do: together the model FLOP utilisation (MFU)."""

from __future__ import annotations

import re

import torch
from torch import nn

PEAK_TERAFLOPS = {
    "Tesla T4": (65.0, 8.1),
    "V100": (125.0, 15.7),
    "L4": (121.0, 60.0),
    "A100": (312.0, 156.0),
    "H100": (989.0, 494.0),
    "H200": (989.0, 494.0),
    "B200": (2250.0, 1125.0),
}
"""Dense 10^12 floating-point operations a second by part of a GPU's name: in 16 bits, and in 32 (or TF32).

From NVIDIA's data sheets of each GPU in its SXM form, https://www.nvidia.com/en-us/data-center/.
"""


def flops_per_sample(model: nn.Module, shape: tuple[int, ...]) -> float:
    """Floating-point operations of a training step for one sample, counted, not run: the model's weights are `meta`.

    `shape` is that of one sample: channels, height, width.
    """
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    with counter:
        # Two samples: batch statistics need more than one value a channel.
        output = model(torch.empty((2, *shape), device="meta"))
        output.sum().backward()
    return counter.get_total_flops() / 2


def peak_flops(device: torch.device, *, sixteen_bits: bool) -> float | None:
    """Operations a second that this device can do at most; None where its name is not known, as for a CPU."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    found = next((peak for part, peak in PEAK_TERAFLOPS.items() if re.search(rf"\b{part}\b", name)), None)
    return found and found[0 if sixteen_bits else 1] * 1e12
