"""float8: multiply matrices in 8 bits with torchao, on GPUs with tensor cores for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from trainer.language.decoder import Decoder
from trainer.rules import FLOAT8_MULTIPLE, invalid_setting

CAPABILITY = (8, 9)
"""Lowest compute capability with float8: https://nvidia.github.io/TransformerEngine/support_matrix.html."""


def use_float8(model: Decoder, recipe: str, device: torch.device, *, tensor: int, emulate: bool = False) -> None:
    """Let the linear layers of the blocks multiply in float8, except those whose sizes tensor cores do not support.

    The weights keep their types and names. `emulate` rounds to float8 and multiplies in more bits, on any device.
    Raises ConfigurationError if the device has no float8, or if torchao is missing.
    """
    if not emulate and (device.type != "cuda" or torch.cuda.get_device_capability(device) < CAPABILITY):
        allowed = "'none' without a GPU of compute capability 8.9 or higher, such as L4 or H100"
        raise invalid_setting("float8", recipe, allowed, "leave --float8 out, or use another GPU")
    try:
        # Imported here because it takes seconds to load, and models without float8 do not need it.
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    except ImportError:
        raise invalid_setting("float8", recipe, "'none' in an image without torchao", "leave --float8 out") from None
    if recipe == "rowwise":
        # Without this, a compiled RMSNorm can give NaN: https://github.com/pytorch/pytorch/issues/150859
        from torch._inductor import config as inductor

        inductor.emulate_precision_casts = True

    def is_divisible(layer: Any, _name: str) -> bool:
        # Each rank of a tensor group multiplies a part of one side.
        return all(side % (FLOAT8_MULTIPLE * tensor) == 0 for side in layer.weight.shape)

    config = replace(Float8LinearConfig.from_recipe_name(recipe), emulate=emulate)
    convert_to_float8_training(model.blocks, module_filter_fn=is_divisible, config=config)
