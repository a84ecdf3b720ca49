"""FLOPs of a model and peak FLOPS of a device, for the model FLOPS utilisation (MFU)."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import torch
from torch import nn

from trainer.models import on_meta_device

PEAK_TERAFLOPS = {
    "Tesla T4": (65.0, 8.1),
    "V100": (125.0, 15.7),
    "L4": (121.0, 60.0),
    "L40S": (362.05, 183.0),
    "A100": (312.0, 156.0),
    "H100": (989.0, 494.0),
    "H200": (989.0, 494.0),
    "B200": (2250.0, 1125.0),
    "B300": (2250.0, 1125.0),
}
"""Dense 10^12 operations a second by part of a GPU's name: in 16 bits, and in 32 bits (or TF32).

From NVIDIA's data sheets of each GPU, in its SXM form if it has one, https://www.nvidia.com/en-us/data-center/.
"""


def flops_per_sample(model: nn.Module, shape: tuple[int, ...]) -> float | None:
    """Return the floating-point operations of a training step per sample, or None if they cannot be counted.

    `shape` is channels, height and width of a sample. The count runs on meta tensors and does not change the model.
    """
    from torch.utils.flop_counter import FlopCounterMode

    own = {torch.ops.aten.convolution_backward: _convolution_backward_flops}
    counter = FlopCounterMode(display=False, custom_mapping=own)
    shapes = on_meta_device(model).train()
    try:
        with counter:
            # Two samples, because batch statistics need more than one value per channel.
            output = shapes(torch.empty((2, *shape), device="meta"))
            output.sum().backward()
    except RuntimeError:
        # The model depends on values, which meta tensors do not have.
        return None
    return float(counter.get_total_flops()) / 2


def _convolution_backward_flops(
    gradient: Sequence[int], images: Sequence[int], weight: Sequence[int], *rest: object, **_named: object
) -> int:
    """Count both gradients, of images and of weights. Each costs as much as the convolution.

    torch's own count ignores groups. `rest` is bias, stride, padding, dilation, transposed, output padding, groups and
    the requested gradients.
    """
    transposed, wanted = rest[4], rest[7]
    assert isinstance(wanted, Sequence)
    places = (images if transposed else gradient)[2:]
    return 2 * gradient[0] * math.prod(places) * math.prod(weight) * sum(map(bool, wanted[:2]))


def peak_flops(device: torch.device, *, sixteen_bits: bool) -> float | None:
    """Return the peak operations a second of this device, or None if it is not known, as for a CPU."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    found = next((peak for part, peak in PEAK_TERAFLOPS.items() if re.search(rf"\b{part}\b", name)), None)
    return found and found[0 if sixteen_bits else 1] * 1e12
