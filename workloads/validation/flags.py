"""Validation of a recipe's flags: folders, devices, flags without effect, and sizes of a language model."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from dataclasses import replace
from math import prod

from infra.hardware.gpus import GPUS
from settings.problem import UNDEFINED, Path, Problem
from workloads.command import BUCKET_PATH, POD_FOLDERS, is_below, uses_torchrun
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
from workloads.trainer_flags import FLAGS, flag_problems
from workloads.user_files import generates_images


def folder_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for each folder in the flags that the trainer cannot write into or that hosts do not share."""
    if spec.recipe is None:
        return
    bucket = str(spec.flag("bucket") or "")
    if bucket.startswith("file:///"):
        folder = posixpath.normpath(bucket.removeprefix("file://"))
        remedy = "remove this flag to use the platform's bucket"
        if is_below(folder, *POD_FOLDERS):
            if spec.hosts > 1:
                message = f"the {spec.hosts} hosts do not share this folder, but they write one checkpoint"
                yield Problem("job.bucket.not_shared_by_hosts", ("flags", "bucket"), f"{message}; {remedy}", bucket)
        elif not is_below(folder, BUCKET_PATH):
            yield Problem("job.bucket.read_only", ("flags", "bucket"), f"is read-only in pods; {remedy}", bucket)
    has_image_files = not generates_images(spec)
    cache = spec.flag("cache_dir") if has_image_files else None
    if cache and not is_below(posixpath.normpath(str(cache)), *POD_FOLDERS, BUCKET_PATH):
        folders = " or ".join(POD_FOLDERS)
        message = f"is read-only in pods; write a folder in {folders}, or remove this flag"
        yield _problem("job.cache_dir.read_only", spec, "cache_dir", message)


def settings_key(spec: JobSpec, name: str) -> str:
    """Return a flag's key in the job's settings, with '-' or '_'."""
    return next((key for key in spec.flags if key.replace("-", "_") == name), name)


def bucket_conflicts(spec: JobSpec, scheme: str) -> Iterator[Problem]:
    """Yield a problem for each path below /bucket, for a job whose bucket is not mounted.

    The URL of the bucket has the scheme `scheme`.
    """
    error = f"pods on this platform have no {BUCKET_PATH}, because the bucket is an object store"
    if spec.script and _path_in_bucket(spec.script) is not None:
        message = f"{error}; write a path in the image, or ./ and the path of a file in the stack's folder"
        yield Problem("job.script.in_bucket", ("script",), message, spec.script)
    values: dict[Path, object] = {
        **{("args", index): word for index, word in enumerate(spec.args)},
        **{("flags", name): value for name, value in spec.flags.items()},
        **{("environment", name): value for name, value in spec.environment.items()},
    }
    for key, value in values.items():
        # An argument is a path, or a flag with a path as its value.
        path = _path_in_bucket(str(value).partition("=")[2] if str(value).startswith("-") else str(value))
        if path is None:
            continue
        name = ".".join(map(str, key)).replace("-", "_")
        if name == "flags.cache_dir":
            remedy = "write a folder of the host, such as /dev/shm"
        elif name == "flags.data_dir" and spec.recipe == "digits":
            remedy = "the digits are in the image; remove this flag"
        else:
            remedy = f"write its URL: the stack's output `bucket_url` ({scheme}://...), followed by {path or '/'}"
        yield Problem("job.bucket.no_folder", key, f"{error}; {remedy}", value)


def _path_in_bucket(text: str) -> str | None:
    """Return the rest of a path below /bucket, or None for any other text."""
    path = text.removeprefix("file://")
    return path.removeprefix(BUCKET_PATH) if is_below(path, BUCKET_PATH) else None


DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES")
"""Variables that can hide GPUs from a program."""


def device_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """Yield the problems of a job's settings with the devices of its hosts."""
    if spec.accelerator and not spec.tpu:
        yield from _hidden_gpus(spec)
    if spec.recipe is None:
        return
    device = spec.flag("device")
    if device == "cuda" and (spec.accelerator is None or spec.tpu):
        message = "the job has no GPU; add for example `accelerator: nvidia-l4`, or write auto"
        yield _problem("job.device.no_gpu", spec, "device", message)
    elif device == "xla" and not spec.on_xla:
        message = "the job does not run on PyTorch/XLA; add `runtime: xla`, or write auto"
        yield _problem("job.device.no_xla", spec, "device", message)
    elif device == "cpu" and spec.accelerator:
        devices = "TPUs" if spec.tpu else "GPUs"
        message = f"the job has {devices}; write auto, or remove `accelerator`"
        yield _problem("job.device.not_cpu", spec, "device", message)
    elif spec.accelerator and not spec.tpu and uses_torchrun(spec):
        yield from _processes(spec)


def _hidden_gpus(spec: JobSpec) -> Iterator[Problem]:
    message = (
        "hides GPUs of the job; remove this variable, and write the number of GPUs per host in `accelerators_per_host`"
    )
    for key, variables in (("environment", spec.environment), ("secrets", spec.secrets)):
        for name in filter(variables.__contains__, DEVICE_VARIABLES):
            value = spec.environment[name] if key == "environment" else UNDEFINED
            yield Problem("job.environment.hides_gpus", (key, name), message, value)


def _processes(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem if a host has more processes than GPUs, or GPUs that no process uses.

    A process uses one GPU. On PyTorch/XLA it may use all of them.
    """
    if spec.processes_per_host > spec.accelerators:
        message = (
            f"each process of a recipe uses one GPU, and a host has {spec.accelerators}; write {spec.accelerators}"
        )
        yield Problem("job.processes_per_host.too_many", ("processes_per_host",), message, spec.processes_per_host)
    elif spec.processes_per_host < spec.accelerators and not spec.on_xla:
        message = (
            f"each process of a recipe uses one GPU, so some of a host's {spec.accelerators} GPUs would stay idle; "
            f"write {spec.accelerators}, or lower `accelerators_per_host`"
        )
        yield Problem("job.processes_per_host.idle_gpus", ("processes_per_host",), message, spec.processes_per_host)


IMAGE_FILE_FLAGS = ("data_dir", "stream", "cache_dir")
SYNTHETIC_IMAGE_FLAGS = ("steps_per_epoch", "test_steps")
BUCKET_FLAGS = (("profile_steps", None), ("wandb", "offline"), ("wandb", "online"))
"""Flags whose output goes only to the bucket, each with a value that causes output. None stands for any value."""


def unused_flags(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for each flag of a recipe that has no effect, or that needs another setting."""
    if spec.recipe is None:
        return
    if "fake_data" in FLAGS[spec.recipe]:
        yield from _unused_image_flags(spec)
    yield from _unused_bucket_flags(spec)
    batch_size = spec.flag("batch_size") or FLAGS[spec.recipe]["batch_size"].default
    is_above = _number(spec.flag("accumulate")) > _number(batch_size)
    if is_above and _are_valid(spec, "accumulate", "batch_size"):
        message = f"must be at most the batch size, {batch_size}; lower it"
        yield _problem("job.accumulate.above_batch_size", spec, "accumulate", message)
    yield from _schedule(spec)
    if spec.flag("sharding") == "model":
        if not spec.on_xla:
            message = "model requires PyTorch/XLA; add `runtime: xla`, or remove this flag"
            yield _problem("job.sharding.without_xla", spec, "sharding", message)
        elif spec.processes_per_host > 1:
            message = "model requires one process per host; remove `processes_per_host`"
            yield _problem("job.sharding.several_processes", spec, "sharding", message)
    if spec.flag("profile_port") and not spec.on_xla:
        message = "requires PyTorch/XLA; write `profile_steps`, which works on every device, or remove this flag"
        yield _problem("job.profile_port.without_xla", spec, "profile_port", message)


def _schedule(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for a decay without effect, or if warm-up and decay together are longer than the run."""
    if not _are_valid(spec, "schedule", "warmup", "decay"):
        return
    warmup, decay = spec.flag("warmup"), spec.flag("decay")
    if spec.flag("schedule") != "stable":
        if decay is not None:
            message = "applies only to the schedule stable; add `schedule: stable`, or remove this flag"
            yield _problem("job.decay.without_stable_schedule", spec, "decay", message)
        return
    flags = FLAGS[str(spec.recipe)]
    shares = {
        name: float(str(flags[name].default if (value := spec.flag(name)) is None else value))
        for name in ("warmup", "decay")
    }
    if round(sum(shares.values()), 9) > 1:
        name, other = ("decay", "warmup") if warmup is None or decay is not None else ("warmup", "decay")
        most = f"{1 - shares[other]:g}"
        message = f"must be at most {most}, because {other} takes {shares[other]:g} of the run; lower one of the two"
        yield _problem(f"job.{name}.longer_than_run", spec, name, message)


def _unused_bucket_flags(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for each flag whose output goes to the bucket, if the job has no bucket."""
    if spec.flag("bucket") != "":
        return
    for name, bucket_value in BUCKET_FLAGS:
        if (value := spec.flag(name)) and bucket_value in (None, value):
            message = "needs a bucket, but `bucket` is empty; set `bucket` or remove this flag"
            yield _problem("job.flags.no_bucket", spec, name, message)


def _problem(code: str, spec: JobSpec, name: str, message: str) -> Problem:
    return Problem(code, ("flags", settings_key(spec, name)), message, spec.flag(name))


def _are_valid(spec: JobSpec, *names: str) -> bool:
    """Return True if each of these flags has an allowed value, so that rules between them apply."""
    wrong = {problem.path[-1] for problem in flag_problems(str(spec.recipe), spec.flags)}
    return not wrong & {settings_key(spec, name) for name in names}


def _number(value: str | float | None) -> float:
    """Convert a number that may be quoted. Return 0 for other text, which `flag_problems` reports."""
    try:
        return float(value or 0)
    except (OverflowError, ValueError):
        return 0


def _unused_image_flags(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for each flag that applies only to image files, or only to synthetic images."""
    is_synthetic = generates_images(spec)
    for name in IMAGE_FILE_FLAGS if is_synthetic else SYNTHETIC_IMAGE_FLAGS:
        if spec.flag(name) in (None, "", False):
            continue
        if is_synthetic:
            message = "has no effect on synthetic images, the default; write `fake_data: false`, or remove this flag"
            yield _problem("job.flags.only_for_image_files", spec, name, message)
        else:
            message = "applies only to synthetic images; an epoch reads each image file once; remove this flag"
            yield _problem("job.flags.only_for_synthetic_images", spec, name, message)
    if not is_synthetic and spec.flag("stream") is True and spec.flag("cache_dir"):
        message = "is the folder of decoded images, which `stream` does not store; remove one of the two"
        yield _problem("job.cache_dir.with_stream", spec, "cache_dir", message)


_DIVIDED_SIZES = ("heads", "kv_heads", "hidden", "context", "vocabulary")
"""Sizes that a tensor group divides among its ranks."""
FLOAT8_MULTIPLE = 16
"""Sizes of a float8 matrix product must be multiples of this, as in trainer/rules.py."""


def language_conflicts(spec: JobSpec) -> Iterator[Problem]:
    """Yield the problems of a job that trains a language model in one of Trainyard's images."""
    if spec.recipe != LANGUAGE or spec.has_user_image:
        return
    if not list(flag_problems(spec.recipe, spec.flags)):
        sizes = model_sizes(spec)
        adapters, xla, float8 = _adapters(spec, sizes), _on_xla(spec), _float8(spec)
        problems = [*_uneven_heads(spec, sizes), *_parallelism(spec, sizes), *adapters, *xla, *float8]
        # The memory check needs valid groups.
        yield from problems or _memory(spec)


def _on_xla(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for selective activation checkpointing, which PyTorch/XLA does not support."""
    if spec.on_xla and spec.flag(CHECKPOINTING) == "selective":
        message = "is not supported by PyTorch/XLA; write full, or none"
        yield _problem("job.activation_checkpointing.on_xla", spec, CHECKPOINTING, message)


def _units(spec: JobSpec) -> str:
    """Return text such as `processes, 8 (hosts x processes_per_host)`: the number that group sizes must divide."""
    per_process = devices_per_process(spec)
    if per_process > 1:
        return f"devices, {num_devices(spec)} (hosts x {per_process} of each host)"
    return f"processes, {num_devices(spec)} (hosts x processes_per_host)"


def _adapters(spec: JobSpec, sizes: dict[str, int]) -> Iterator[Problem]:
    """Yield a problem for a LoRA rank without `init_from` or above the model's sizes, or an alpha without a rank."""
    rank = int(str(spec.flag("lora_rank") or 0))
    if not rank:
        if spec.flag("lora_alpha") is not None:
            message = "has no effect without adapters; add `lora_rank`, or remove this flag"
            yield _problem("job.lora_alpha.no_rank", spec, "lora_alpha", message)
        return
    if not spec.flag("init_from"):
        message = "needs weights to start from; add `init_from`, or remove this flag"
        yield _problem("job.lora_rank.no_weights", spec, "lora_rank", message)
    # The layers of keys and values can have fewer outputs than `width`. This rule ignores that.
    elif rank > (most := min(sizes["width"], sizes["hidden"])):
        message = f"must be at most {most}, the smaller of width and hidden; lower it"
        yield _problem("job.lora_rank.above_width", spec, "lora_rank", message)


def _float8(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for float8 on hardware without float8, or with flags that do not allow float8."""
    if spec.flag("float8") in (None, "none"):
        return
    gpu = GPUS.get(spec.accelerator or "")
    if not gpu or not gpu.has_float8:
        allowed = ", ".join(name for name, each in GPUS.items() if each.has_float8)
        message = f"needs an accelerator with float8, one of {allowed}; change `accelerator`, or remove this flag"
        yield _problem("job.float8.no_hardware", spec, "float8", message)
    if spec.flag("amp") is not True:
        message = "needs 16 bits for all other numbers; add `amp: true`, or remove this flag"
        yield _problem("job.float8.no_amp", spec, "float8", message)
    if spec.flag("lora_rank"):
        message = "is not allowed with LoRA; remove this flag, or lora_rank"
        yield _problem("job.float8.lora", spec, "float8", message)
    if (context := model_sizes(spec)["context"]) % FLOAT8_MULTIPLE:
        message = f"needs a context that is a multiple of {FLOAT8_MULTIPLE}, not {context}; change context"
        yield _problem("job.float8.context", spec, "float8", message)


def _uneven_heads(spec: JobSpec, sizes: dict[str, int]) -> Iterator[Problem]:
    """Yield a problem if twice `heads` does not divide `width`, or `kv_heads` does not divide `heads`."""
    heads = sizes["heads"]
    if sizes["width"] % (2 * heads):
        message = f"must be a multiple of {2 * heads}, twice the number of heads; write a multiple, or change heads"
        yield _uneven(spec, "width", sizes["width"], message)
    elif heads % sizes["kv_heads"]:
        message = f"must be a divisor of heads, {heads}; write a divisor, or change heads"
        yield _uneven(spec, "kv_heads", sizes["kv_heads"], message)


def _uneven(spec: JobSpec, name: str, size: int, message: str) -> Problem:
    return Problem(f"job.{name}.uneven", ("flags", settings_key(spec, name)), message, size)


def _parallelism(spec: JobSpec, sizes: dict[str, int]) -> Iterator[Problem]:
    """Yield a problem for groups whose sizes do not divide the number of ranks or the sizes of the model."""
    text = str(spec.flag("parallelism") or "")
    groups = group_sizes(spec)
    path = ("flags", settings_key(spec, "parallelism"))
    if len(groups) < text.count("=") or list(groups.values()).count(AUTO) > 1:
        message = "must name each group once and use `auto` at most once; remove the extra one"
        yield Problem("job.parallelism.twice", path, message, text)
        return
    # For an elastic job, this is the number of one host.
    ranks = num_devices(spec)
    product = prod(size for size in groups.values() if size != AUTO)
    is_exact = AUTO not in groups.values() and "data" in groups
    if spec.elastic and text and (is_exact or ranks % product):
        message = (
            f"must allow any number of hosts with {ranks} processes each; write sizes whose product divides {ranks}, "
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
            message = f"has tensor={tensor}, which PyTorch/XLA does not support here; write only data and shard"
            yield Problem("job.parallelism.tensor_on_xla", path, message, text)
        elif message := shard_problem(spec, shard, sizes["width"]):
            yield Problem("job.parallelism.shard_on_xla", path, message, text)
        return
    for name in _DIVIDED_SIZES:
        if tensor and sizes[name] % tensor:
            message = f"has tensor={tensor}, which must divide {name}, {sizes[name]}; write a divisor of {sizes[name]}"
            yield Problem("job.parallelism.tensor", path, message, text)
            return


def _memory(spec: JobSpec) -> Iterator[Problem]:
    """Yield a problem for a job that certainly does not fit into the memory of its devices."""
    training = language_training(spec)
    limit, device = device_memory(spec)
    least = least_memory(training)
    if least.total <= limit:
        return
    state = least.weights + least.gradients + least.optimizer
    # Report the setting that changes the largest part of the memory.
    if state > least.total / 2:
        name = "parallelism" if spec.flag("parallelism") else "preset"
        value: object = spec.flag(name) or FLAGS[LANGUAGE][name].default
    else:
        single = least_memory(replace(training, batch_size=1, accumulate=1))
        name = "context" if training.rows == 1 or single.total > limit else "batch_size"
        value = training.context if name == "context" else spec.flag(name) or training.batch_size
    fitting = settings_that_fit(spec, limit)
    is_host = device.startswith("resources.memory")
    more = "raise `resources.memory`, or use more hosts" if is_host else "use devices with more memory, or more hosts"
    remedy = f"write {fitting}" if fitting else more
    message = (
        f"needs at least {least.total / GIB:,.1f} GiB of each device ({memory_parts(least)}), and {device} has "
        f"{limit / GIB:,.1f} GiB; {remedy}"
    )
    yield Problem(f"job.{name}.memory", ("flags", settings_key(spec, name)), message, value)


def memory_parts(memory: DeviceMemory) -> str:
    """Return the nonzero uses of a device's memory as text, in GiB."""
    parts = {name: size for name, size in vars(memory).items() if size}
    return ", ".join(f"{name} {size / GIB:,.1f}" for name, size in parts.items())
