"""torchtitan's model code of Llama 3, with the sizes of a model of Trainyard, for the plain loop.

torchtitan's own trainer refuses CPUs. Its FlexAttention and VarlenAttention need a GPU for a backward pass, so a CPU
measure uses its ScaledDotProductAttention, which has one.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import nn

from trainer.config import LanguageConfig

NORM_INIT: Any = {"weight": nn.init.ones_}
MATRIX_INIT: Any = {"weight": partial(nn.init.trunc_normal_, std=0.02)}


class TorchtitanModel(nn.Module):
    """Scores of torchtitan's decoder for samples of one document each."""

    def __init__(self, decoder: Any, *, has_mask: bool) -> None:
        super().__init__()
        self.decoder, self._has_mask = decoder, has_mask

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return scores, samples x tokens x vocabulary. As torchtitan does, make positions and mask for each batch."""
        positions = masks = None
        if self._has_mask:
            positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
            masks = self.decoder.get_attention_masks(positions)
        scores: torch.Tensor = self.decoder(tokens, positions=positions, attention_masks=masks)
        return scores


def torchtitan_model(config: LanguageConfig, device: torch.device) -> TorchtitanModel:
    """Return torchtitan's model with the sizes, compilation and float8 of these settings, and random weights."""
    from torchtitan.components.quantization import Float8LinearConverter
    from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
    from torchtitan.models.common.attention import FlexAttention, ScaledDotProductAttention
    from torchtitan.models.common.config_utils import make_ffn_config, make_gqa_config
    from torchtitan.models.llama3.model import Llama3Model, Llama3TransformerBlock

    sizes, has_mask = config.sizes, device.type == "cuda"
    norm = RMSNorm.Config(normalized_shape=sizes.width, eps=1e-5, param_init=NORM_INIT)
    attention = make_gqa_config(
        dim=sizes.width,
        n_heads=sizes.heads,
        n_kv_heads=sizes.kv_heads,
        wqkv_param_init=MATRIX_INIT,
        wo_param_init=MATRIX_INIT,
        inner_attention=FlexAttention.Config() if has_mask else ScaledDotProductAttention.Config(),
        fuse_qkv=True,
        rope=ComplexRoPE.Config(dim=sizes.head_width, max_seq_len=config.context, theta=config.rope_base),
    )
    feed_forward = make_ffn_config(
        dim=sizes.width, hidden_dim=sizes.hidden, w1_param_init=MATRIX_INIT, w2w3_param_init=MATRIX_INIT
    )
    block = Llama3TransformerBlock.Config(
        attention_norm=norm, ffn_norm=norm, attention=attention, feed_forward=feed_forward
    )
    described: Any = Llama3Model.Config(
        dim=sizes.width,
        vocab_size=config.vocabulary,
        enable_weight_tying=sizes.is_tied,
        tok_embeddings=Embedding.Config(
            num_embeddings=config.vocabulary, embedding_dim=sizes.width, param_init=MATRIX_INIT
        ),
        norm=norm,
        lm_head=Linear.Config(in_features=sizes.width, out_features=config.vocabulary, param_init=MATRIX_INIT),
        layers=[block] * sizes.layers,
    )
    if config.float8 != "none":
        # On a CPU it only runs emulated, which torchtitan does not allow with a compiled model.
        emulate = device.type == "cpu"
        converter: Any = Float8LinearConverter.Config(
            recipe_name=config.float8,  # torchtitan has no tensorwise
            filter_fqns=["lm_head"],
            model_compile_enabled=config.compile,
            emulate=emulate,
        )
        described = converter.build().convert(described)
    with device:
        decoder = described.build()
    decoder.init_states()
    for layer in decoder.layers.values() if config.compile else ():
        layer.compile(fullgraph=True)
    return TorchtitanModel(decoder, has_mask=has_mask)
