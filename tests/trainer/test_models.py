"""Models of the recipe `imagenet`: classifiers of torchvision and timm, for images of the requested size."""

from __future__ import annotations

import pytest
import torch

from trainer.config import ImagenetConfig
from trainer.exit_codes import ConfigurationError
from trainer.models import build_model


@pytest.mark.parametrize(
    ("arch", "size"),
    [
        ("inception_v3", 96),
        ("googlenet", 64),
        ("vit_b_16", 64),
        ("resnet18", 64),
        ("timm/vit_tiny_patch16_224", 64),
        ("timm/deit_tiny_patch16_224", 224),
        ("timm/swin_tiny_patch4_window7_224", 112),
        ("timm/inception_v3", 96),
    ],
)
def test_models_accept_the_image_size_and_give_one_score_per_class(arch: str, size: int) -> None:
    with torch.device("meta"):
        model = build_model(ImagenetConfig(arch=arch, image_size=size), classes=3, channels=3).train()
        assert model(torch.rand(2, 3, size, size)).shape == (2, 3)


@pytest.mark.parametrize(
    "arch", ["fasterrcnn_resnet50_fpn", "fcn_resnet50", "raft_small", "r3d_18", "quantized_resnet18"]
)
def test_model_that_is_not_a_classifier_is_rejected(arch: str) -> None:
    with pytest.raises(ConfigurationError, match=f"arch = '{arch}': must be an image classifier; see torchvision"):
        build_model(ImagenetConfig(arch=arch), classes=3, channels=3)


@pytest.mark.parametrize(("arch", "size"), [("vit_b_16", 100), ("timm/xcit_nano_12_p8_224", 7)])
def test_image_size_that_a_model_rejects_is_bad_configuration(arch: str, size: int) -> None:
    with pytest.raises(ConfigurationError, match=f"image_size = {size}: must be a size that the model supports"):
        build_model(ImagenetConfig(arch=arch, image_size=size), classes=3, channels=3)
