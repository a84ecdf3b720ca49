"""The counted FLOPs of a training step agree with torchvision's count of the forward pass."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from trainer.config import DigitsConfig, ImagenetConfig
from trainer.models import build_model
from trainer.report.flops import flops_per_sample

GIGA = 10**9
PUBLISHED = {
    "regnet_y_400mf": 0.402,
    "regnet_x_800mf": 0.8,
    "resnet50": 4.089,
    "resnext50_32x4d": 4.23,
    "mobilenet_v3_small": 0.057,
    "vit_b_16": 17.564,
}
"""10^9 multiplications of a forward pass, from the `meta` of torchvision's weights."""


@pytest.mark.parametrize("arch", PUBLISHED)
def test_flops_of_a_step_are_three_forward_passes(arch: str) -> None:
    model = build_model(ImagenetConfig(arch=arch), classes=1000, channels=3)
    counted = flops_per_sample(model, (3, 224, 224))
    assert counted is not None
    # The images need no gradient, which would be part of the first layer.
    assert 0.94 < counted / (6 * GIGA * PUBLISHED[arch]) < 1.001


@pytest.mark.parametrize("layer", [nn.Conv2d, nn.ConvTranspose2d])
def test_flops_of_grouped_convolutions_are_lower_in_backward_pass(layer: type[nn.Conv2d | nn.ConvTranspose2d]) -> None:
    counted = {}
    for groups in (1, 4):
        model = nn.Sequential(nn.Conv2d(3, 8, 1), layer(8, 8, 3, groups=groups))
        found, first = flops_per_sample(model, (3, 9, 9)), flops_per_sample(model[:1], (3, 9, 9))
        assert found is not None
        assert first is not None
        # Only the first layer's weights need a gradient.
        counted[groups] = found - first
    assert counted[1] == 4 * counted[4]


def test_flops_count_leaves_model_unchanged() -> None:
    model = build_model(DigitsConfig(), classes=10, channels=1).eval()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = torch.get_rng_state()
    assert flops_per_sample(model, (1, 28, 28))
    assert torch.equal(state, torch.get_rng_state())
    assert not model.training
    assert all(weight.grad is None for weight in model.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_flops_of_value_dependent_model_are_none() -> None:
    class Looks(nn.Linear):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return super().forward(images) if images.sum() > 0 else images

    assert flops_per_sample(Looks(3, 3), (3,)) is None
