"""Validation of a language model's sizes, and of the groups of ranks that train it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from settings.problem import Problem
from workloads.command import process_layout
from workloads.spec import JobSpec
from workloads.trainer_flags import FLAGS, flag_problems, value_of
from workloads.validation.flags import settings_key

LANGUAGE = "language"
_AUTO = 0
_DIVIDED = ("heads", "kv_heads", "hidden", "context", "vocabulary")
"""Sizes that a tensor group divides among its ranks."""


def language_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """Yield the problems of a job that trains a language model with Trainyard's trainer."""
    if spec.recipe != LANGUAGE or spec.image is not None:
        return
    if spec.on_xla:
        message = "does not run on PyTorch/XLA; use GPUs or CPUs, or write another recipe"
        yield Problem("job.recipe.not_on_xla", ("recipe",), message, spec.recipe)
    elif not list(flag_problems(spec.recipe, spec.flags)):
        sizes = model_sizes(spec)
        yield from _uneven_heads(spec, sizes)
        yield from _parallelism(spec, sizes)


def model_sizes(spec: JobSpec) -> dict[str, int]:
    """Return the sizes of a job's model: its flags, else its preset."""
    flags = FLAGS[LANGUAGE]
    preset = value_of(LANGUAGE, spec.flags, "preset") or flags["preset"].default
    sizes = dict(flags["preset"].sizes[str(preset)])
    for name in (*sizes.keys() & flags.keys(), "context", "vocabulary"):
        given = value_of(LANGUAGE, spec.flags, name) or 0
        sizes[name] = int(str(given)) or sizes.get(name) or int(str(flags[name].default))
    return sizes


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
    pairs = [pair.split("=") for pair in text.split(",") if pair]
    groups = {name: _AUTO if size == "auto" else int(size) for name, size in pairs}
    path = ("flags", settings_key(spec, "parallelism"))
    if len(groups) < len(pairs) or list(groups.values()).count(_AUTO) > 1:
        message = "must have each size once, at most one of them auto; remove one of them"
        yield Problem("job.parallelism.twice", path, message, text)
        return
    ranks = spec.processes_per_host if spec.elastic else process_layout(spec).world_size
    product = prod(size for size in groups.values() if size != _AUTO)
    is_exact = _AUTO not in groups.values() and "data" in groups
    if spec.elastic and text and (is_exact or ranks % product):
        message = (
            f"must allow any number of hosts with {ranks} processes each: write sizes whose product divides {ranks}, "
            "without data or with data=auto"
        )
        yield Problem("job.parallelism.elastic", path, message, text)
    elif text and (product != ranks if is_exact else ranks % product):
        relation = "be" if is_exact else "divide"
        message = (
            f"has the product {product}, which must {relation} the number of processes, {ranks} (hosts x "
            "processes_per_host); change a size, or the number of hosts"
        )
        yield Problem("job.parallelism.product", path, message, text)
    tensor = groups.get("tensor", 1) or ranks // product
    if tensor > 1 and value_of(LANGUAGE, spec.flags, "compile") is True:
        message = "is not allowed with tensor groups; remove it, or write parallelism without tensor"
        yield Problem("job.compile.tensor", ("flags", settings_key(spec, "compile")), message, True)
    for name in _DIVIDED:
        if tensor and sizes[name] % tensor:
            message = f"has tensor={tensor}, which must divide {name}, {sizes[name]}; write a divisor of it"
            yield Problem("job.parallelism.tensor", path, message, text)
            return
