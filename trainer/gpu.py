"""Detect NVIDIA GPUs, and check that the installed torch supports them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from trainer.exit_codes import ConfigurationError

DRIVER_FILE = Path("/dev/nvidiactl")
"""Device file of the NVIDIA driver, which hosts and pods with a GPU have."""
HIDING_VALUES = ("", "-1")
"""Values of $CUDA_VISIBLE_DEVICES that hide all GPUs."""
_TARGET = re.compile(r"(?P<kind>sm|compute)_(?P<major>\d+)(?P<minor>\d)(?P<exact>[af]?)")


def has_gpu() -> bool:
    """Return True if this host has NVIDIA GPUs that are not hidden from this process."""
    return DRIVER_FILE.exists() and os.environ.get("CUDA_VISIBLE_DEVICES") not in HIDING_VALUES


def should_use_gpu() -> bool:
    """Return True if training should use this host's GPUs.

    Raises ConfigurationError if torch does not support the driver or the GPUs. Without this error, training would fail
    at the first kernel, or run on CPUs while paid GPUs are idle.
    """
    import torch

    if torch.cuda.is_available():
        built_for = torch.cuda.get_arch_list()
        for number in range(torch.cuda.device_count()):
            major, minor = torch.cuda.get_device_capability(number)
            if not has_kernels(built_for, major, minor):
                raise ConfigurationError(
                    f"this host's GPU is {torch.cuda.get_device_name(number)}, of compute capability {major}.{minor}; "
                    f"torch {torch.__version__} supports only GPUs of {', '.join(built_for)}: use an image with a "
                    "torch that is built for it, such as Trainyard's `image: cuda12` for 7.0"
                )
        return True
    if has_gpu():
        needed = "an image with a torch that is built with CUDA"
        if torch.version.cuda:
            needed = (
                f"a driver for CUDA {torch.version.cuda} (on GKE `gpu_driver: latest`), or Trainyard's `image: cuda12`"
            )
        raise ConfigurationError(
            f"this host has a GPU that torch {torch.__version__} cannot use (torch says: {_reason()}); "
            f"the run needs {needed}; to train on CPUs, set CUDA_VISIBLE_DEVICES to an empty value"
        )
    return False


def has_kernels(built_for: Iterable[str], major: int, minor: int) -> bool:
    """Return True if a GPU can run code that is compiled for these targets, such as sm_80.

    A kernel runs on GPUs with its own major version and the same or a later minor version. PTX (compute_80) runs on all
    newer GPUs: https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#binary-compatibility
    """
    for target in filter(None, map(_TARGET.fullmatch, built_for)):
        own = (int(target["major"]), int(target["minor"]))
        is_newer = own < (major, minor) and (target["kind"] == "compute" or own[0] == major)
        if own == (major, minor) or (is_newer and not target["exact"]):
            return True
    return False


def _reason() -> str:
    """Return the first line of CUDA's error message."""
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]  # torch has no type for it
    except (AssertionError, RuntimeError) as error:
        return str(error).strip().splitlines()[0]
    return "CUDA finds no GPU"
