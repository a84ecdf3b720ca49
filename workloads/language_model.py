"""Estimates for a job that trains a language model: weights, operations, and memory of a device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, gcd, prod

from infra.hardware.gpus import GPUS
from infra.hardware.tpus import GENERATIONS
from workloads.command import process_layout, uses_torchrun
from workloads.spec import JobSpec
from workloads.trainer_flags import FLAGS, GROUP_NAMES

LANGUAGE = "language"
AUTO = 0
"""Placeholder for the size of a group that follows from the sizes of the others."""
CHECKPOINTING = "activation_checkpointing"
"""Name of the flag for activation checkpointing."""
GIB = 2**30
MASTER_BYTES = 4
"""Bytes of a weight, of its gradient, and of each number of its optimizer state. All have 32 bits."""
OPTIMIZER_NUMBERS = {"adamw": 2, "sgd": 1}
"""Numbers that an optimizer keeps for each weight: AdamW two averages, SGD the momentum."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """Sizes of a decoder, as in trainer/language/sizes.py."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    is_tied: bool
    """True if the output layer uses the weights of the embedding."""

    @property
    def kv_width(self) -> int:
        """Width of a token's keys in all heads, and also of its values."""
        return self.width // self.heads * self.kv_heads

    @property
    def block_weights(self) -> int:
        """Number of weights of a block, without its two norms."""
        return 2 * self.width * (self.width + self.kv_width) + 3 * self.width * self.hidden

    @property
    def embedding_weights(self) -> int:
        """Number of weights of the embedding and the output layer."""
        return self.vocabulary * self.width * (1 if self.is_tied else 2)

    @property
    def weights(self) -> int:
        """Number of all weights, without the norms."""
        return self.layers * self.block_weights + self.embedding_weights

    @property
    def matrix_weights(self) -> int:
        """Number of weights that multiply each token: all but the norms and the input embedding."""
        return self.layers * self.block_weights + self.vocabulary * self.width

    def flops_per_token(self, context: int) -> float:
        """Return the operations of a training step for each token, as trainer/language/sizes.py counts them."""
        return 6.0 * self.matrix_weights + 6.0 * self.layers * self.width * context


@dataclass(frozen=True, kw_only=True)
class LanguageTraining:
    """Settings of a job that determine the memory of a device."""

    model: Model
    context: int
    """Tokens of a sample."""
    batch_size: int
    """Samples of a device in each step."""
    accumulate: int
    """Number of forward passes of a step."""
    number_bytes: int
    """Bytes of each number in the activations."""
    optimizer: str
    is_compiled: bool
    checkpointing: str
    """Results of a block that the backward pass computes again: `none`, `selective` or `full`."""
    is_adapted: bool
    """True if LoRA's adapters are trained instead of the weights."""
    keeps_scores: bool = False
    """True if attention keeps a score for each pair of tokens, as on PyTorch/XLA."""
    data: int
    """Number of copies of the weights."""
    shard: int
    """Number of devices of a shard group, which share a copy of the weights."""
    tensor: int
    """Number of devices of a tensor group, which share each matrix product."""

    @property
    def rows(self) -> int:
        """Largest number of samples of a forward pass on a device."""
        return ceil(self.batch_size / self.accumulate)

    @property
    def tokens(self) -> float:
        """Tokens of a forward pass on a device. The devices of a tensor group share them (sequence parallelism)."""
        return self.rows * self.context / self.tensor

    @property
    def flops_per_token(self) -> float:
        """Operations of a training step for each token, without the operations of LoRA's adapters."""
        # Fixed weights have no gradients, which saves a third of their operations.
        fixed = self.model.matrix_weights if self.is_adapted else 0
        return self.model.flops_per_token(self.context) - 2.0 * fixed

    @property
    def is_sharded(self) -> bool:
        """True if no device has all weights."""
        return self.shard * self.tensor > 1


@dataclass(frozen=True, kw_only=True)
class DeviceMemory:
    """Bytes that a job needs on each device, by use."""

    weights: float
    gradients: float
    optimizer: float
    copies: float
    """Weights in 16 bits, and weights and gradients that FSDP2 gathers for a block."""
    activations: float
    logits: float
    """Scores of the possible next tokens, and the copies that the loss needs."""

    @property
    def total(self) -> float:
        """Sum of all uses. It is more than the peak, because the uses do not all peak at the same time."""
        return float(sum(vars(self).values()))


def model_sizes(spec: JobSpec) -> dict[str, int]:
    """Return the sizes of a job's model: each from its flag, else from the preset, else the flag's default."""
    flags = FLAGS[LANGUAGE]
    preset = spec.flag("preset") or flags["preset"].default
    sizes = dict(flags["preset"].sizes[str(preset)])
    for name in (*sizes.keys() & flags.keys(), "context", "vocabulary"):
        given = spec.flag(name) or 0
        sizes[name] = int(str(given)) or sizes.get(name) or int(str(flags[name].default))
    return sizes


def group_sizes(spec: JobSpec) -> dict[str, int]:
    """Return the sizes of the groups in the flag `parallelism`, AUTO for `auto`."""
    text = str(spec.flag("parallelism") or "")
    pairs = [pair.split("=") for pair in text.split(",") if pair]
    return {name: AUTO if size == "auto" else int(size) for name, size in pairs}


def devices_per_process(spec: JobSpec) -> int:
    """Return the number of devices of one process: all of its host on PyTorch/XLA without torchrun, else one."""
    if not spec.on_xla or uses_torchrun(spec):
        return 1
    if spec.tpu:
        return spec.tpu.chips_per_host * GENERATIONS[spec.tpu.generation].devices_per_chip
    virtual = spec.environment.get("CPU_NUM_DEVICES", "1")
    return max(1, int(virtual)) if virtual.isdecimal() else 1


def num_devices(spec: JobSpec) -> int:
    """Return the number of devices of all hosts, or of one host if the job is elastic. `parallelism` divides them."""
    processes = spec.processes_per_host if spec.elastic else process_layout(spec).world_size
    return processes * devices_per_process(spec)


def language_training(spec: JobSpec) -> LanguageTraining:
    """Return the settings of a job with the recipe `language`. Its flags and groups must be valid."""
    sizes = model_sizes(spec)
    context = sizes.pop("context")
    output = spec.flag("output")
    is_tied = output == "tied" if output in ("tied", "untied") else bool(sizes["is_tied"])
    sizes.pop("is_tied")
    per_process = devices_per_process(spec)
    groups, ranks = group_sizes(spec), process_layout(spec).world_size * per_process
    if AUTO not in groups.values():
        groups.setdefault("data", AUTO)
    known = prod(size for size in groups.values() if size != AUTO)
    groups = {name: size or max(1, ranks // known) for name, size in groups.items()}
    return LanguageTraining(
        model=Model(**sizes, is_tied=is_tied),
        context=context,
        batch_size=ceil(_count(spec, "batch_size") / per_process),
        accumulate=_count(spec, "accumulate"),
        number_bytes=2 if spec.flag("amp") is True else 4,
        optimizer=str(spec.flag("optimizer") or FLAGS[LANGUAGE]["optimizer"].default),
        is_compiled=spec.flag("compile") is True,
        checkpointing=str(spec.flag(CHECKPOINTING) or "none"),
        is_adapted=bool(spec.flag("lora_rank")),
        keeps_scores=spec.on_xla,
        **{name: groups.get(name, 1) for name in GROUP_NAMES},
    )


def _count(spec: JobSpec, name: str) -> int:
    return int(str(spec.flag(name) or FLAGS[LANGUAGE][name].default))


def block_numbers(training: LanguageTraining) -> int:
    """Return how many numbers a block keeps for each token until its backward pass.

    The count follows https://arxiv.org/abs/2205.05198, section 4.1, for the trainer's block: attention that keeps no
    scores (https://arxiv.org/abs/2205.14135), SwiGLU and no dropout. The block keeps the inputs of both norms and of
    the layers after them. Attention keeps queries, keys, values and its output. The feed-forward layer keeps both
    products, SiLU's output and the last layer's input. A compiled block can compute the elementwise results again, and
    selective activation checkpointing does.
    """
    model = training.model
    if training.is_compiled or training.checkpointing == "selective":
        return 4 * model.width + 2 * model.kv_width + 2 * model.hidden
    scores = model.heads * training.context if training.keeps_scores else 0
    return 6 * model.width + 2 * model.kv_width + 4 * model.hidden + scores


def _activations(training: LanguageTraining) -> tuple[float, float]:
    """Return the bytes that all blocks keep for their backward pass, and the bytes that one block computes again."""
    layers, numbers = training.model.layers, block_numbers(training)
    # With full checkpointing, each block keeps only its input, and one block at a time has all its numbers.
    kept, again = (
        (layers * training.model.width, numbers) if training.checkpointing == "full" else (layers * numbers, 0)
    )
    return training.number_bytes * training.tokens * kept, training.number_bytes * training.tokens * again


def estimated_memory(training: LanguageTraining) -> DeviceMemory:
    """Return the estimated memory of a device, without torch, communication buffers and fragmentation."""
    model, parts = training.model, training.shard * training.tensor
    master = MASTER_BYTES * model.weights / parts
    if training.is_sharded:
        # FSDP2 holds the gathered weights of two blocks, the embedding and the output layer at a time, and one block's
        # gradients.
        gathered = 3 * model.block_weights + model.embedding_weights
        copies = training.number_bytes * gathered / training.tensor
    else:
        copies = 2.0 * model.weights if training.number_bytes < MASTER_BYTES else 0.0
    trained = 0 if training.is_adapted else master
    return DeviceMemory(
        weights=master,
        gradients=trained,
        optimizer=OPTIMIZER_NUMBERS[training.optimizer] * trained,
        copies=copies,
        activations=sum(_activations(replace(training, is_compiled=False))),
        logits=_logits(training) * training.tensor,
    )


def least_memory(training: LanguageTraining) -> DeviceMemory:
    """Return a lower bound of the memory that a device needs from the second step on.

    A step frees its activations while it computes gradients, so include only the larger of activations and gradients.
    Include both if gradients accumulate over several forward passes, because the gradients then exist during each pass.
    The backward pass frees the logits before it recomputes a block, so include only the larger of logits and block. XLA
    can recompute the scores of attention, so leave them out.
    """
    training = replace(training, keeps_scores=False)
    found = estimated_memory(training)
    # With adapters, count the inputs of all blocks and the activations of one block: the gradients of fixed weights,
    # which would need more activations, are not computed.
    kept = replace(training, checkpointing="full") if training.is_adapted else training
    (inputs, again), logits = _activations(kept), _logits(training)
    activations = inputs + again
    if training.checkpointing == "full":
        activations, logits = (inputs, logits) if logits > again else (activations, 0.0)
    if training.accumulate == 1 and activations + logits > found.gradients:
        found = replace(found, gradients=0)
    elif training.accumulate == 1:
        activations = logits = 0.0
    return replace(found, copies=0, activations=activations, logits=logits)


def _logits(training: LanguageTraining) -> float:
    """Return the bytes of the logits, of their copy in 32 bits, and of their logarithms. Tensor groups divide them."""
    copies = training.number_bytes + MASTER_BYTES if training.number_bytes < MASTER_BYTES else MASTER_BYTES
    return (copies + MASTER_BYTES) * training.tokens * training.model.vocabulary


def device_memory(spec: JobSpec) -> tuple[int, str]:
    """Return the memory of each device in bytes and the device's name. On CPUs it is a share of the host's memory."""
    if gpu := GPUS.get(spec.accelerator or ""):
        return gpu.memory_gib * GIB, gpu.name
    if spec.tpu:
        row = GENERATIONS[spec.tpu.generation]
        return row.hbm_gib * GIB // row.devices_per_chip, f"a device of TPU {row.name}"
    if spec.on_xla:
        return spec.resources.capacity.memory // devices_per_process(spec), "resources.memory of a device"
    return spec.resources.capacity.memory // spec.processes_per_host, "resources.memory of a process"


def shard_problem(spec: JobSpec, shard: int, width: int) -> str:
    """Return the problem of shard groups of this size on PyTorch/XLA; empty if there is none."""
    per_host = devices_per_process(spec)
    if shard > 1 and uses_torchrun(spec):
        return "is not allowed with one process per device; write `processes_per_host: 1` on TPUs, or remove this flag"
    if width % shard:
        return f"has shard={shard}, which must divide the width, {width}, on PyTorch/XLA; write a divisor of the width"
    if shard % per_host and per_host % shard:
        return f"has shard={shard}, which must divide a host's {per_host} devices or be a multiple of them; change it"
    return ""


def settings_that_fit(spec: JobSpec, limit: int) -> str:
    """Return flags with which the estimate of a job's memory is below `limit` bytes; empty if there are none.

    Try more shards of the weights first, then smaller parts of a batch, then activation checkpointing, then a shorter
    context. Try a smaller preset last, unless flags or published weights determine the model's sizes.
    """
    training = language_training(spec)
    for found in _candidates(spec, training):
        if estimated_memory(found).total <= limit:
            return " and ".join(f"`{flag}`" for flag in _changed_flags(training, found))
    presets = FLAGS[LANGUAGE]["preset"].sizes
    fixed = ("layers", "width", "heads", "kv_heads", "hidden", "init_from")
    if not any(spec.flag(name) for name in fixed):
        for preset in reversed(list(presets)):
            smaller = language_training(spec.model_copy(update={"flags": {**spec.flags, "preset": preset}}))
            is_even = gcd(smaller.model.kv_heads, smaller.model.hidden) % smaller.tensor == 0
            if is_even and estimated_memory(smaller).total <= limit:
                return f"`preset: {preset}`"
    return ""


def _candidates(spec: JobSpec, training: LanguageTraining) -> Iterator[LanguageTraining]:
    """Yield the training itself, then variants that need less memory, in the order of `settings_that_fit`."""
    ranks = num_devices(spec)
    shards = [size for size in range(training.shard, ranks + 1) if ranks % (size * training.tensor) == 0]
    if spec.on_xla:
        shards = [size for size in shards if not shard_problem(spec, size, training.model.width)] or [training.shard]
    powers = [2**power for power in range(training.batch_size.bit_length())]
    splits = [training.accumulate, *(size for size in powers if size > training.accumulate)]
    halves = [training.context >> halvings for halvings in range(12)]
    contexts = [context for context in halves if context and context % training.tensor == 0]
    levels = FLAGS[LANGUAGE][CHECKPOINTING].choices
    levels = levels[levels.index(training.checkpointing) :]
    levels = tuple(level for level in levels if not (spec.on_xla and level == "selective"))
    for context, checkpointing, accumulate, shard in product(contexts, levels, splits, shards):
        data = max(1, ranks // (shard * training.tensor))
        yield replace(
            training, context=context, checkpointing=checkpointing, accumulate=accumulate, shard=shard, data=data
        )


def _changed_flags(before: LanguageTraining, after: LanguageTraining) -> Iterator[str]:
    if after.shard != before.shard:
        tensor = f",tensor={after.tensor}" if after.tensor > 1 else ""
        yield f"parallelism: shard={after.shard}{tensor}"
    for name, flag in (("checkpointing", CHECKPOINTING), ("accumulate", "accumulate"), ("context", "context")):
        if (value := getattr(after, name)) != getattr(before, name):
            yield f"{flag}: {value}"
