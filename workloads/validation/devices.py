"""Validation of devices: recipes that need devices which their hosts lack, or leave devices idle. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from settings.problem import UNDEFINED, Problem
from workloads.command import uses_torchrun
from workloads.spec import JobSpec
from workloads.trainer_flags import value_of

VISIBLE = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""Variables that hide GPUs from a program."""


def device_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """Yield the conflicts of a job's settings with the devices of its hosts."""
    if spec.accelerator and not spec.tpu:
        yield from _hidden(spec)
    if spec.recipe is None:
        return
    device = value_of(spec.recipe, spec.flags, "device")
    if device == "cuda" and (spec.accelerator is None or spec.tpu):
        message = "the job has no GPU: add for example `accelerator: nvidia-l4`, or write auto"
        yield Problem("job.device.no_gpu", ("flags", "device"), message, device)
    elif device == "xla" and not spec.on_xla:
        yield Problem(
            "job.device.no_xla",
            ("flags", "device"),
            "the job has no PyTorch/XLA: add `runtime: xla`, or write auto",
            device,
        )
    elif device == "cpu" and spec.accelerator:
        what = "TPUs" if spec.tpu else "GPUs"
        yield Problem(
            "job.device.not_cpu",
            ("flags", "device"),
            f"the job has {what}: write auto, or remove `accelerator`",
            device,
        )
    elif spec.accelerator and not spec.tpu and uses_torchrun(spec):
        yield from _processes(spec)


def _hidden(spec: JobSpec) -> Iterator[Problem]:
    message = "hides GPUs that the job has; remove it, and write in `accelerators_per_host` how many each host needs"
    for key, variables in (("environment", spec.environment), ("secrets", spec.secrets)):
        for name in filter(variables.__contains__, VISIBLE):
            value = spec.environment[name] if key == "environment" else UNDEFINED
            yield Problem("job.environment.hides_gpus", (key, name), message, value)


def _processes(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem if processes and GPUs do not match. A process uses one GPU; on PyTorch/XLA it may use all."""
    if spec.processes_per_host > spec.accelerators:
        message = f"each process of a recipe has a GPU to itself, and a host has {spec.accelerators}; write that"
        yield Problem("job.processes_per_host.too_many", ("processes_per_host",), message, spec.processes_per_host)
    elif spec.processes_per_host < spec.accelerators and not spec.on_xla:
        message = (
            f"each process of a recipe has one GPU, and a host has {spec.accelerators}, of which the others stay idle; "
            f"write {spec.accelerators}, or lower `accelerators_per_host`"
        )
        yield Problem("job.processes_per_host.idle_gpus", ("processes_per_host",), message, spec.processes_per_host)
