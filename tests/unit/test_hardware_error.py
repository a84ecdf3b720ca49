"""HardwareError: hardware that does not go together names the setting to change, whatever its message says."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infra.hardware.gce import gce_machine, gpus_on
from infra.hardware.machines import HardwareError
from infra.hardware.tpus import tpu_slice

CASES: dict[str, tuple[Callable[[], object], str]] = {
    "unknown machine type": (lambda: gce_machine("n1-standard-5"), "machine_type"),
    "other GPU than the machine's": (lambda: gpus_on(gce_machine("a3-highgpu-8g"), "nvidia-l4", None), "machine_type"),
    "other number than the machine's": (
        lambda: gpus_on(gce_machine("a3-highgpu-8g"), None, 4),
        "accelerators_per_node",
    ),
    "unknown GPU": (lambda: gpus_on(gce_machine("n1-standard-4"), "nvidia-t4", 1), "accelerator"),
    "GPU of other machines": (lambda: gpus_on(gce_machine("n1-standard-4"), "nvidia-l4", 1), "machine_type"),
    "family without GPUs": (lambda: gpus_on(gce_machine("n2-standard-4"), "nvidia-tesla-t4", 1), "machine_type"),
    "three GPUs": (lambda: gpus_on(gce_machine("n1-standard-4"), "nvidia-tesla-t4", 3), "accelerators_per_node"),
    "too large": (lambda: gpus_on(gce_machine("n1-standard-96"), "nvidia-tesla-t4", 1), "machine_type"),
    "unknown TPU": (lambda: tpu_slice("v9-8"), "accelerator"),
    "half a chip": (lambda: tpu_slice("v4-33", "2x2x4"), "accelerator"),
    "generation alone": (lambda: tpu_slice("v4"), "accelerator"),
    "no slice of so many chips": (lambda: tpu_slice("v4-14"), "accelerator"),
    "no such topology": (lambda: tpu_slice("v4", "2x3x4"), "topology"),
    "topology that is none": (lambda: tpu_slice("v4", "big"), "topology"),
    "topology of other chips": (lambda: tpu_slice("v4-32", "2x2x2"), "topology"),
}


@pytest.mark.parametrize("name", CASES)
def test_hardware_error_has_key_to_change(name: str) -> None:
    call, key = CASES[name]
    with pytest.raises(HardwareError) as caught:
        call()
    assert caught.value.key == key
