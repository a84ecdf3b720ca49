"""Whether this machine has NVIDIA GPUs that torch can compute on: asked before anything is computed elsewhere."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from trainer.exit_codes import ConfigurationError

CONTROL = Path("/dev/nvidiactl")
"""There is an NVIDIA GPU: its driver makes this file, and a pod has it that was given one."""
HIDDEN = ("", "-1")
"""Values of $CUDA_VISIBLE_DEVICES that hide all GPUs."""
_TARGET = re.compile(r"(?P<kind>sm|compute)_(?P<major>\d+)(?P<minor>\d)(?P<alone>[af]?)")


def has_gpu() -> bool:
    """Whether this host has NVIDIA GPUs that are not hidden from this process, whether torch can use them or not."""
    return CONTROL.exists() and os.environ.get("CUDA_VISIBLE_DEVICES") not in HIDDEN


def on_gpu() -> bool:
    """Whether to compute on this host's GPUs.

    Raises ConfigurationError for GPUs that this torch cannot use, by their driver or by their age: training would go
    on at once on the CPUs of a host that is paid for its GPUs, or end at the first kernel.
    """
    import torch

    if torch.cuda.is_available():
        built_for = torch.cuda.get_arch_list()
        for number in range(torch.cuda.device_count()):
            major, minor = torch.cuda.get_device_capability(number)
            if not has_kernels(built_for, major, minor):
                raise ConfigurationError(
                    f"this host's GPU is {torch.cuda.get_device_name(number)}, of compute capability {major}.{minor}; "
                    f"allowed with torch {torch.__version__} are those of {', '.join(built_for)}: take an image with a "
                    "torch that is built for it, as Trainyard's `image: cuda12` is for 7.0"
                )
        return True
    if has_gpu():
        needed = f"a driver for CUDA {torch.version.cuda}" if torch.version.cuda else "a torch that is built with CUDA"
        raise ConfigurationError(
            f"this host has a GPU that torch {torch.__version__} cannot use; allowed is {needed}: {_reason()}; take a "
            "newer driver (on GKE `gpu_driver: latest`) or Trainyard's `image: cuda12`; to compute on the CPUs set "
            "CUDA_VISIBLE_DEVICES to nothing"
        )
    return False


def has_kernels(built_for: Iterable[str], major: int, minor: int) -> bool:
    """Whether a GPU runs what is compiled for these targets, such as sm_80.

    A kernel runs on its own major version from its minor version on, and PTX (compute_80) on all that is newer:
    https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#binary-compatibility
    """
    return any(_runs(target, major, minor) for target in filter(None, map(_TARGET.fullmatch, built_for)))


def _runs(target: re.Match[str], major: int, minor: int) -> bool:
    of = (int(target["major"]), int(target["minor"]))
    if target["alone"]:
        return of == (major, minor)
    return of <= (major, minor) and (target["kind"] == "compute" or of[0] == major)


def _reason() -> str:
    """What CUDA says is wrong, in a line."""
    import torch

    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]  # torch has no type for it
    except (AssertionError, RuntimeError) as error:
        return str(error).strip().splitlines()[0]
    return "it found no GPU"
