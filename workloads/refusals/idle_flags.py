"""Flags of a recipe that would do nothing in the job that has them, least of all what their author expects. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from types import MappingProxyType

from workloads.spec import JobSpec
from workloads.trainer_flags import FLAGS, Values, value_of

OF_REAL_IMAGES = ("data_dir", "stream", "cache_dir")
OF_MADE_UP_IMAGES = ("steps_per_epoch", "test_steps")
IN_A_BUCKET = (("profile_steps", None), ("wandb", "offline"), ("wandb", "online"))
"""Flags, and of a choice what it says, of that which is written into the bucket and nowhere else."""
BATCH_SIZES = MappingProxyType({"digits": 64, "imagenet": 128})
"""Recipe -> samples that a rank takes a step where nothing is said."""


def idle_flags(spec: JobSpec) -> Iterator[tuple[str, str]]:
    """Name and message of each such flag of a job with a recipe."""
    if spec.recipe is None:
        return
    if "fake_data" in FLAGS[spec.recipe]:
        yield from _of_images(spec.recipe, spec.flags)
    yield from _without_a_bucket(spec.recipe, spec.flags)
    batch_size = value_of(spec.recipe, spec.flags, "batch_size") or BATCH_SIZES[spec.recipe]
    if _number(value_of(spec.recipe, spec.flags, "accumulate")) > _number(batch_size):
        yield "accumulate", f"cuts a batch of {batch_size} into more parts than it has samples; lower it"
    if value_of(spec.recipe, spec.flags, "sharding") == "model":
        if not spec.on_xla:
            yield "sharding", "model is of PyTorch/XLA: add `runtime: xla`, or remove it"
        elif spec.processes_per_host > 1:
            yield "sharding", "model spreads the weights over the devices of one process; remove `processes_per_host`"
    if value_of(spec.recipe, spec.flags, "profile_port") and not spec.on_xla:
        yield "profile_port", "is of PyTorch/XLA's profiler; write `profile_steps`, which is of any, or remove it"


def _without_a_bucket(recipe: str, flags: Values) -> Iterator[tuple[str, str]]:
    """Flags of what would be written into the bucket, where the job says that it has none."""
    if value_of(recipe, flags, "bucket") != "":
        return
    for name, wanted in IN_A_BUCKET:
        if (value := value_of(recipe, flags, name)) and wanted in (None, value):
            yield name, "is written into the bucket, and an empty `bucket` takes nothing; remove that flag, or this"


def _number(value: str | float | None) -> float:
    """A number that may be in quotes; 0 for what is none, which is refused by itself."""
    try:
        return float(value or 0)
    except (OverflowError, ValueError):
        return 0


def _of_images(recipe: str, flags: Values) -> Iterator[tuple[str, str]]:
    """Flags of images in files where images are made up, and the other way round."""
    made_up = value_of(recipe, flags, "fake_data") is not False
    for name in OF_REAL_IMAGES if made_up else OF_MADE_UP_IMAGES:
        if value_of(recipe, flags, name) in (None, "", False):
            continue
        if made_up:
            yield name, "is of images in files, and images are made up by default; add `fake_data: false`, or remove it"
        else:
            yield name, "is of made-up images (an epoch reads each image in the files once); remove it"
    if not made_up and value_of(recipe, flags, "stream") is True and value_of(recipe, flags, "cache_dir"):
        yield "cache_dir", "is where decoded images are kept, and `stream` keeps none; remove one of the two"
