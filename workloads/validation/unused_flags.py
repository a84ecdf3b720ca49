"""Validation of flags that have no effect in their job. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from settings.problem import Problem
from workloads.spec import JobSpec
from workloads.trainer_flags import FLAGS, value_of

OF_REAL_IMAGES = ("data_dir", "stream", "cache_dir")
OF_MADE_UP_IMAGES = ("steps_per_epoch", "test_steps")
IN_A_BUCKET = (("profile_steps", None), ("wandb", "offline"), ("wandb", "online"))
"""Flags whose output goes only to the bucket, each with the value that has this output; None for any value."""


def unused_flags(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for each unused flag of a job with a recipe."""
    if spec.recipe is None:
        return
    if "fake_data" in FLAGS[spec.recipe]:
        yield from _of_images(spec)
    yield from _without_a_bucket(spec)
    batch_size = value_of(spec.recipe, spec.flags, "batch_size") or FLAGS[spec.recipe]["batch_size"].default
    if _number(value_of(spec.recipe, spec.flags, "accumulate")) > _number(batch_size):
        yield _problem(
            "job.accumulate.above_batch",
            spec,
            "accumulate",
            f"cuts a batch of {batch_size} into more parts than it has samples; lower it",
        )
    if value_of(spec.recipe, spec.flags, "sharding") == "model":
        if not spec.on_xla:
            yield _problem(
                "job.sharding.without_xla",
                spec,
                "sharding",
                "model is of PyTorch/XLA: add `runtime: xla`, or remove it",
            )
        elif spec.processes_per_host > 1:
            yield _problem(
                "job.sharding.several_processes",
                spec,
                "sharding",
                "model spreads the weights over the devices of one process; remove `processes_per_host`",
            )
    if value_of(spec.recipe, spec.flags, "profile_port") and not spec.on_xla:
        yield _problem(
            "job.profile_port.without_xla",
            spec,
            "profile_port",
            "is of PyTorch/XLA's profiler; write `profile_steps`, which is of any, or remove it",
        )


def _without_a_bucket(spec: JobSpec) -> Iterator[Problem]:
    """Yield the flags that write into the bucket, if the job has no bucket."""
    if _value(spec, "bucket") != "":
        return
    for name, wanted in IN_A_BUCKET:
        if (value := _value(spec, name)) and wanted in (None, value):
            yield _problem(
                "job.flags.no_bucket",
                spec,
                name,
                "is written into the bucket, and an empty `bucket` takes nothing; remove that flag, or this",
            )


def _value(spec: JobSpec, name: str) -> str | int | float | bool | None:
    """Return the value of a flag of the job's recipe."""
    return value_of(spec.recipe, spec.flags, name) if spec.recipe else None


def _problem(code: str, spec: JobSpec, name: str, message: str) -> Problem:
    return Problem(code, ("flags", name), message, _value(spec, name))


def _number(value: str | float | None) -> float:
    """Return a number that may be quoted. Return 0 for other text, which has its own problem."""
    try:
        return float(value or 0)
    except (OverflowError, ValueError):
        return 0


def _of_images(spec: JobSpec) -> Iterator[Problem]:
    """Yield the flags for image files if images are generated, and the flags for generated images if they are not."""
    made_up = _value(spec, "fake_data") is not False
    for name in OF_REAL_IMAGES if made_up else OF_MADE_UP_IMAGES:
        if _value(spec, name) in (None, "", False):
            continue
        if made_up:
            yield _problem(
                "job.flags.of_image_files",
                spec,
                name,
                "is of images in files, and images are made up by default; add `fake_data: false`, or remove it",
            )
        else:
            yield _problem(
                "job.flags.of_made_up_images",
                spec,
                name,
                "is of made-up images (an epoch reads each image in the files once); remove it",
            )
    if not made_up and _value(spec, "stream") is True and _value(spec, "cache_dir"):
        yield _problem(
            "job.cache_dir.with_stream",
            spec,
            "cache_dir",
            "is where decoded images are kept, and `stream` keeps none; remove one of the two",
        )
