"""GPUs of the hardware tables: peak FLOPS, float8, and kernels in torch. A GPU without kernels is rejected."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from infra.hardware.gpus import GPUS
from trainer import gpu
from trainer.exit_codes import ConfigurationError
from trainer.language.decoder import FLOAT8_CAPABILITY
from trainer.step_log import PEAK_TERAFLOPS

CUDA_13 = ("sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120")
CUDA_12 = ("sm_70", *CUDA_13)
"""Architectures that torch's builds for CUDA 13 and CUDA 12 have kernels for."""
CAPABILITIES = {
    "nvidia-tesla-t4": (7, 5),
    "nvidia-tesla-v100": (7, 0),
    "nvidia-l4": (8, 9),
    "nvidia-a10g": (8, 6),
    "nvidia-tesla-a100": (8, 0),
    "nvidia-a100-80gb": (8, 0),
    "nvidia-h100-80gb": (9, 0),
    "nvidia-h100-mega-80gb": (9, 0),
    "nvidia-h200-141gb": (9, 0),
    "nvidia-b200": (10, 0),
    "nvidia-rtx-pro-6000": (12, 0),
    "nvidia-l40s": (8, 9),
    "nvidia-b300": (10, 3),
}
"""Compute capability of each GPU.

https://developer.nvidia.com/cuda-gpus and https://developer.nvidia.com/cuda-legacy-gpus
"""

UNKNOWN_PEAK = {"A10G", "RTX PRO 6000"}
"""Devices for which no page with dense peak FLOPS was found. Their runs report no MFU."""


def test_every_gpu_has_peak_flops_or_is_listed_as_unknown() -> None:
    known = {each.device_name for each in GPUS.values()} - UNKNOWN_PEAK
    assert known == set(PEAK_TERAFLOPS), "add the device to PEAK_TERAFLOPS in trainer/step_log.py, or to UNKNOWN_PEAK"


def test_trainer_and_hardware_table_have_the_same_peak_flops() -> None:
    known = {each.device_name: each.teraflops for each in GPUS.values() if each.teraflops is not None}
    assert known == {name: teraflops for name, (teraflops, _) in PEAK_TERAFLOPS.items()}


@pytest.mark.parametrize("name", GPUS)
def test_gpu_has_float8_if_its_compute_capability_is_high_enough(name: str) -> None:
    assert GPUS[name].has_float8 is (CAPABILITIES[name] >= FLOAT8_CAPABILITY)


@pytest.mark.skipif(torch.version.cuda is None, reason="torch is built without CUDA here")
def test_trainer_torch_has_kernels_for_every_gpu_that_runs_it() -> None:
    built_for = (torch._C._cuda_getArchFlags() or "").split()
    assert CAPABILITIES.keys() == GPUS.keys()
    for name, capability in CAPABILITIES.items():
        assert gpu.has_kernels(built_for, *capability) is GPUS[name].runs_cuda_13, name


@pytest.mark.parametrize(
    ("built_for", "capability", "runs"),
    [
        (CUDA_13, (7, 0), False),
        (CUDA_12, (7, 0), True),
        (CUDA_13, (7, 5), True),
        (CUDA_13, (8, 9), True),
        (CUDA_13, (9, 0), True),
        (CUDA_13, (10, 0), True),
        (CUDA_13, (10, 3), True),
        (CUDA_13, (11, 0), False),
        (("sm_90a",), (9, 0), True),
        (("sm_100a",), (10, 3), False),
        (("sm_80", "compute_80"), (12, 0), True),
        (("sm_80", "compute_80"), (7, 5), False),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_has_kernels_accepts_only_compatible_targets(
    built_for: tuple[str, ...], capability: tuple[int, int], runs: bool
) -> None:
    assert gpu.has_kernels(built_for, *capability) is runs


def test_should_use_gpu_without_driver_for_this_torch_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nvidiactl").touch()
    monkeypatch.setattr(gpu, "DRIVER_FILE", tmp_path / "nvidiactl")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not gpu.has_gpu(), "tests/conftest.py must hide the GPUs"
    assert not gpu.should_use_gpu()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    with pytest.raises(ConfigurationError, match=r"has a GPU that torch .* cannot use .*run needs a driver for CUDA 1"):
        gpu.should_use_gpu()
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(ConfigurationError, match=r"run needs an image with a torch that is built with CUDA; to train"):
        gpu.should_use_gpu()


def test_gpu_that_is_too_old_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_arch_list", lambda: list(CUDA_13))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _number: "Tesla V100-SXM2-16GB")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _number: (7, 0))
    with pytest.raises(
        ConfigurationError, match=r"V100-SXM2-16GB, of compute capability 7\.0; torch .* only GPUs of sm_75, "
    ):
        gpu.should_use_gpu()
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _number: (8, 6))
    assert gpu.should_use_gpu()
