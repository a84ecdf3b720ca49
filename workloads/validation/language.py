"""Validation of a language model's sizes and memory, and of the groups of ranks that train it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from infra.hardware.gpus import GPUS
from settings.problem import Problem
from workloads.language_model import (
    AUTO,
    CHECKPOINTING,
    GIB,
    LANGUAGE,
    DeviceMemory,
    device_memory,
    devices_per_process,
    group_sizes,
    language_training,
    least_memory,
    model_sizes,
    num_devices,
    settings_that_fit,
    shard_problem,
)
from workloads.spec import JobSpec
from workloads.trainer_flags import FLAGS, flag_problems, value_of
from workloads.validation.flags import settings_key

_DIVIDED = ("heads", "kv_heads", "hidden", "context", "vocabulary")
"""Sizes that a tensor group divides among its ranks."""
FLOAT8_MULTIPLE = 16
"""Divisor of the sizes of a float8 product, as in trainer/rules.py."""


def language_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """Yield the problems of a job that trains a language model with Trainyard's trainer."""
    if spec.recipe != LANGUAGE or spec.image is not None:
        return
    if not list(flag_problems(spec.recipe, spec.flags)):
        sizes = model_sizes(spec)
        adapters, xla, float8 = _adapters(spec), _on_xla(spec), _float8(spec)
        problems = [*_uneven_heads(spec, sizes), *_parallelism(spec, sizes), *adapters, *xla, *float8]
        # Groups that do not fit the ranks have no memory to check.
        yield from problems or _memory(spec)


def _on_xla(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for activation checkpointing that XLA cannot do."""
    value, path = value_of(LANGUAGE, spec.flags, CHECKPOINTING), ("flags", settings_key(spec, CHECKPOINTING))
    if spec.on_xla and value == "selective":
        message = "is not supported by PyTorch/XLA; write full, or none"
        yield Problem("job.activation_checkpointing.on_xla", path, message, value)


def _units(spec: JobSpec) -> str:
    """Return the number of processes or devices that groups divide, and what it follows from."""
    per_process = devices_per_process(spec)
    if per_process > 1:
        return f"devices, {num_devices(spec)} (hosts x {per_process} of each host)"
    return f"processes, {num_devices(spec)} (hosts x processes_per_host)"


def _adapters(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for adapters of random weights."""
    rank = value_of(LANGUAGE, spec.flags, "lora_rank")
    if rank and not value_of(LANGUAGE, spec.flags, "init_from"):
        message = "needs weights to start from; add `init_from`, or remove this flag"
        yield Problem("job.lora_rank.no_weights", ("flags", settings_key(spec, "lora_rank")), message, rank)


def _float8(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for float8 on hardware without it, or next to flags that exclude it."""
    recipe = value_of(LANGUAGE, spec.flags, "float8")
    if recipe in (None, "none"):
        return
    path, gpu = ("flags", settings_key(spec, "float8")), GPUS.get(spec.accelerator or "")
    if not gpu or not gpu.has_float8:
        allowed = ", ".join(name for name, each in GPUS.items() if each.has_float8)
        message = f"needs an accelerator with float8, one of {allowed}; change `accelerator`, or remove this flag"
        yield Problem("job.float8.no_hardware", path, message, recipe)
    if value_of(LANGUAGE, spec.flags, "amp") is not True:
        message = "needs 16 bits for all else; add `amp: true`, or remove this flag"
        yield Problem("job.float8.no_amp", path, message, recipe)
    if value_of(LANGUAGE, spec.flags, "lora_rank"):
        message = "is not allowed with LoRA; remove this flag, or lora_rank"
        yield Problem("job.float8.lora", path, message, recipe)
    if (context := model_sizes(spec)["context"]) % FLOAT8_MULTIPLE:
        message = f"needs a context that is a multiple of {FLOAT8_MULTIPLE}, not {context}; change context"
        yield Problem("job.float8.context", path, message, recipe)


def _uneven_heads(spec: JobSpec, sizes: dict[str, int]) -> Iterator[Problem]:
    """Yield a problem for a width or a number of heads that cannot be divided evenly."""
    heads = sizes["heads"]
    if sizes["width"] % (2 * heads):
        message = f"must be a multiple of {2 * heads}, twice the number of heads; write a multiple, or change heads"
        yield _problem(spec, "width", sizes["width"], message)
    elif heads % sizes["kv_heads"]:
        message = f"must be a divisor of heads, {heads}; write a divisor, or change heads"
        yield _problem(spec, "kv_heads", sizes["kv_heads"], message)


def _problem(spec: JobSpec, name: str, size: int, message: str) -> Problem:
    return Problem(f"job.{name}.uneven", ("flags", settings_key(spec, name)), message, size)


def _parallelism(spec: JobSpec, sizes: dict[str, int]) -> Iterator[Problem]:
    """Yield a problem for groups of ranks that do not divide the ranks or the model."""
    text = str(value_of(LANGUAGE, spec.flags, "parallelism") or "")
    groups = group_sizes(spec)
    path = ("flags", settings_key(spec, "parallelism"))
    if len(groups) < text.count("=") or list(groups.values()).count(AUTO) > 1:
        message = "must have each size once, at most one of them auto; remove one of them"
        yield Problem("job.parallelism.twice", path, message, text)
        return
    ranks = num_devices(spec)
    product = prod(size for size in groups.values() if size != AUTO)
    is_exact = AUTO not in groups.values() and "data" in groups
    if spec.elastic and text and (is_exact or ranks % product):
        message = (
            f"must allow any number of hosts with {ranks} processes each: write sizes whose product divides {ranks}, "
            "without data or with data=auto"
        )
        yield Problem("job.parallelism.elastic", path, message, text)
    elif text and (product != ranks if is_exact else ranks % product):
        relation = "be" if is_exact else "divide"
        message = (
            f"has the product {product}, which must {relation} the number of {_units(spec)}; change a size, or the "
            "number of hosts"
        )
        yield Problem("job.parallelism.product", path, message, text)
    tensor, shard = (groups.get(name, 1) or max(1, ranks // product) for name in ("tensor", "shard"))
    if spec.on_xla:
        if tensor > 1:
            message = f"has tensor={tensor}, which PyTorch/XLA does not support here; write data and shard alone"
            yield Problem("job.parallelism.tensor_on_xla", path, message, text)
        elif message := shard_problem(spec, shard, sizes["width"]):
            yield Problem("job.parallelism.shard_on_xla", path, message, text)
        return
    for name in _DIVIDED:
        if tensor and sizes[name] % tensor:
            message = f"has tensor={tensor}, which must divide {name}, {sizes[name]}; write a divisor of it"
            yield Problem("job.parallelism.tensor", path, message, text)
            return


def _memory(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for a training that certainly does not fit into the memory of its devices."""
    training = language_training(spec)
    limit, device = device_memory(spec)
    least = least_memory(training)
    if least.total <= limit:
        return
    state = least.weights + least.gradients + least.optimizer
    # The key is the setting that changes the largest use.
    if state > least.total / 2:
        name = "parallelism" if value_of(LANGUAGE, spec.flags, "parallelism") else "preset"
        value: object = value_of(LANGUAGE, spec.flags, name) or FLAGS[LANGUAGE][name].default
    else:
        name = "context" if training.rows == 1 else "batch_size"
        value = training.context if name == "context" else value_of(LANGUAGE, spec.flags, name) or training.batch_size
    fitting = settings_that_fit(spec, limit)
    remedy = f"write {fitting}" if fitting else "use devices with more memory, or more hosts"
    message = (
        f"needs at least {least.total / GIB:,.1f} GiB of each device ({memory_parts(least)}), and {device} has "
        f"{limit / GIB:,.1f} GiB; {remedy}"
    )
    yield Problem(f"job.{name}.memory", ("flags", settings_key(spec, name)), message, value)


def memory_parts(memory: DeviceMemory) -> str:
    """Return the uses of a device's memory in words."""
    parts = {name: size for name, size in vars(memory).items() if size}
    return ", ".join(f"{name} {size / GIB:,.1f}" for name, size in parts.items())
