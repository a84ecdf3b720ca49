"""Training loops of well-known reference scripts, for the same model and batch as Trainyard's loop.

The loops do the same as these scripts, without copied code: torchvision's classification reference
(https://github.com/pytorch/vision/tree/main/references/classification), the ImageNet example of
https://github.com/pytorch/examples/tree/main/imagenet, and on a GPU the train benchmark of timm
(https://github.com/huggingface/pytorch-image-models/blob/main/benchmark.py). Language models have two references:
the plain loop of a single-file script, and torchtitan's model.

The first two scripts read from a DataLoader. On a CPU, the loader here has images generated in advance, so that the
measurement does not include the generation of random numbers. On a GPU, every step uses one batch in the GPU's
memory.

`python -m bench.reference_loops KIND` runs the image loops in a separate process, so that only the scripts' own
settings apply. The kind `references` runs on the CPU, and any other kind on a GPU. For each line of its input, the
process runs an epoch of the loop with that name and answers with `RESULT seconds`.
"""

from __future__ import annotations

import math
import sys
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from bench.measure import RESULT
from trainer.config import ImagenetConfig, LanguageConfig
from trainer.models import build_model

CONFIG = ImagenetConfig(
    arch="resnet18",
    image_size=128,
    num_classes=1000,
    batch_size=16,
    steps_per_epoch=3,
    epochs=1_000_000,
    channels_last=False,
    learning_rate=1e-9,
    bucket="",
)
"""Configuration of the image loops on a CPU; `gpu_config` changes it for a GPU. The learning rate is too small to
change a weight, because the time of a step can depend on the weights' values."""
GPU_STEPS = 20
"""Steps of an epoch on a GPU. The bench times one epoch at a time (a "block" in bench/measure.py)."""
PRINT_STEPS = 10
"""Steps between two printed lines in the first two scripts."""
SMOOTHED_VALUES = 20
"""Number of last values whose median torchvision's reference prints."""
BYTES_PER_IMAGE = 100 * 2**20
"""Maximum memory of a step of ResNet-50 in 32 bits for each image of 224 pixels."""
MEMORY_PARTS = 4
"""Number of parts of a GPU's memory. Trainyard's process and the references' process use one part each."""
LARGEST_BATCH = 256
"""Default batch size of timm and pytorch/examples."""
NORM_INIT: Any = {"weight": nn.init.ones_}
MATRIX_INIT: Any = {"weight": partial(nn.init.trunc_normal_, std=0.02)}
Batches = Iterable[Sequence[torch.Tensor]]
"""Images and labels of each step of an epoch."""


def gpu_config(memory: int) -> ImagenetConfig:
    """Return the configuration of the image loops on a GPU with this memory in bytes: ResNet-50 and ImageNet's size."""
    fitting = max(1, memory // MEMORY_PARTS // BYTES_PER_IMAGE)
    batch_size = min(LARGEST_BATCH, 2 ** (fitting.bit_length() - 1))
    return replace(
        CONFIG,
        arch="resnet50",
        image_size=224,
        batch_size=batch_size,
        steps_per_epoch=GPU_STEPS,
        # One of the two compared processes may wait a long time while the other compiles.
        process_group_timeout=3600.0,
    )


def first_gpu() -> ImagenetConfig:
    """Return `gpu_config` for this machine's first GPU."""
    return gpu_config(torch.cuda.get_device_properties(0).total_memory)


def loader(config: ImagenetConfig) -> DataLoader[tuple[torch.Tensor, ...]]:
    """Return a loader with a random image for each sample of an epoch."""
    count = config.batch_size * config.steps_per_epoch
    generator = torch.Generator().manual_seed(config.seed)
    images = torch.randn(count, 3, config.image_size, config.image_size, generator=generator)
    labels = torch.randint(config.num_classes, (count,), generator=generator)
    return DataLoader(TensorDataset(images, labels), batch_size=config.batch_size, shuffle=True)


def images_on_gpu(config: ImagenetConfig, device: torch.device) -> Batches:
    """Return batches in the memory of a GPU: one batch for all steps, as in Trainyard's loop."""
    side = config.image_size
    images = torch.randn(config.batch_size, 3, side, side, device=device)
    labels = torch.randint(config.num_classes, (config.batch_size,), device=device)
    return [(images, labels)] * config.steps_per_epoch


def top_k_accuracy(logits: torch.Tensor, labels: torch.Tensor, *ks: int) -> Iterator[torch.Tensor]:
    """Yield for each k the percentage of samples whose class is among the k most likely ones."""
    with torch.inference_mode():
        classes = logits.topk(max(ks), dim=1).indices.t()
        is_right = classes == labels
        for k in ks:
            yield is_right[:k].float().sum() * (100 / len(labels))


def torchvision_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Batches) -> None:
    """Run an epoch of torchvision's script: read loss and two accuracies at every step, and print their medians."""
    torch.backends.cudnn.benchmark = True
    model.train()
    values: dict[str, deque[float]] = defaultdict(lambda: deque(maxlen=SMOOTHED_VALUES))
    ended = time.time()
    for number, (images, labels) in enumerate(batches):
        started = time.time()
        values["data"].append(started - ended)
        logits = model(images)
        loss = functional.cross_entropy(logits, labels)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        optimizer.step()
        top1, top5 = top_k_accuracy(logits, labels, 1, 5)
        values["loss"].append(loss.item())
        values["acc1"].append(top1.item())
        values["acc5"].append(top5.item())
        values["img/s"].append(len(images) / (time.time() - started))
        if number % PRINT_STEPS == 0:
            print(number, {name: f"{median(found):.4f}" for name, found in values.items()})
        ended = time.time()


def imagenet_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Batches) -> None:
    """Run an epoch of the ImageNet example: read loss and two accuracies at every step, and print the means so far."""
    torch.backends.cudnn.benchmark = False
    model.train()
    sums: dict[str, float] = defaultdict(float)
    ended = time.time()
    for number, (images, labels) in enumerate(batches, start=1):
        sums["data"] += time.time() - ended
        logits = model(images)
        loss = functional.cross_entropy(logits, labels)
        top1, top5 = top_k_accuracy(logits, labels, 1, 5)
        for name, value in (("loss", loss), ("acc1", top1), ("acc5", top5)):
            sums[name] += value.item()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        optimizer.step()
        sums["time"] += time.time() - ended
        ended = time.time()
        if number % PRINT_STEPS == 1:
            print(number, {name: f"{total / number:.4f}" for name, total in sums.items()})


def timm_loop(config: ImagenetConfig, device: torch.device, half: torch.dtype) -> Callable[[], None]:
    """Return an epoch of timm's train benchmark, in 16 bits and channels-last memory.

    The epoch computes no metrics. Each step waits for the device.
    """
    model = build_model(config, classes=config.num_classes, channels=3)
    model = model.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in torch's types
    optimizer = torch.optim.SGD(model.parameters(), lr=config.learning_rate, momentum=0.9, nesterov=True)
    images = torch.randn(config.batch_size, 3, config.image_size, config.image_size, device=device)
    images = images.contiguous(memory_format=torch.channels_last)

    def epoch() -> None:
        torch.backends.cudnn.benchmark = True
        model.train()
        for _ in range(config.steps_per_epoch):
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=half):
                labels = torch.randint(config.num_classes, (config.batch_size,), device=device)
                loss = functional.cross_entropy(model(images), labels)
            loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
            optimizer.step()
            wait_for_device(device)

    return epoch


def wait_for_device(device: torch.device) -> None:
    """Wait until the device has finished its queued work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def loops(config: ImagenetConfig, device: torch.device) -> dict[str, Callable[[], None]]:
    """Return an epoch of the first two scripts, by the name of the loop."""
    model = build_model(config, classes=config.num_classes, channels=3).to(device)
    # The scripts set neither `foreach` nor `fused`, so torch chooses the implementation.
    optimizer = torch.optim.SGD(
        model.parameters(), lr=config.learning_rate, momentum=0.9, weight_decay=config.weight_decay
    )
    batches: Batches = loader(config) if device.type == "cpu" else images_on_gpu(config, device)
    epochs = {"torchvision": torchvision_epoch, "imagenet": imagenet_epoch}
    return {name: partial(epoch, model, optimizer, batches) for name, epoch in epochs.items()}


def gpu_loops(config: ImagenetConfig, device: torch.device, half: torch.dtype) -> dict[str, Callable[[], None]]:
    """Return an epoch of each loop, timm's included. `half` is the GPU's fast 16-bit type."""
    return {**loops(config, device), "timm": timm_loop(config, device, half)}


@dataclass(frozen=True, kw_only=True)
class LanguageSettings:
    """Settings of the plain loop of a language model."""

    batch_size: int
    context: int
    learning_rate: float
    warmup_steps: int = 100
    all_steps: int = 1_000_000
    clip_norm: float = 1.0
    print_steps: int = 20
    half: torch.dtype | None = None
    """Type of matrix products; None for 32 bits."""
    device: str = "cpu"


def token_batches(row: torch.Tensor, settings: LanguageSettings) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the inputs and labels of each step of an epoch: samples of a sequence of tokens, in random order."""
    size, context = settings.batch_size, settings.context
    order = torch.randperm((len(row) - 1) // context)
    for start in range(0, len(order) - size + 1, size):
        places = order[start : start + size, None] * context + torch.arange(context + 1)
        tokens = row[places].long().to(settings.device)
        yield tokens[:, :-1], tokens[:, 1:]


def language_rate(step: int, settings: LanguageSettings) -> float:
    """Return the learning rate of a step: a linear warm-up, then a cosine."""
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    progress = (step - settings.warmup_steps) / (settings.all_steps - settings.warmup_steps)
    return settings.learning_rate * (0.1 + 0.45 * (1 + math.cos(math.pi * progress)))


def language_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, row: torch.Tensor, settings: LanguageSettings, *, step: int = 0
) -> None:
    """Train for an epoch as a single-file script does: no checkpoints, events, clocks or watchdog.

    The loop sets the learning rate by a schedule, clips the gradient and prints the loss.
    """
    model.train()
    for inputs, labels in token_batches(row, settings):
        for group in optimizer.param_groups:
            group["lr"] = language_rate(step, settings)
        with torch.autocast(settings.device, dtype=settings.half, enabled=settings.half is not None):
            logits = model(inputs)
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no type for it
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        step += 1
        if step % settings.print_steps == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)


class TorchtitanModel(nn.Module):
    """torchtitan's decoder as a model that returns logits. Each sample is one document."""

    def __init__(self, decoder: Any, *, has_mask: bool) -> None:
        super().__init__()
        self.decoder, self._has_mask = decoder, has_mask

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return logits, samples x tokens x vocabulary. Like torchtitan, make positions and mask for each batch."""
        positions = masks = None
        if self._has_mask:
            positions = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
            masks = self.decoder.get_attention_masks(positions)
        logits: torch.Tensor = self.decoder(tokens, positions=positions, attention_masks=masks)
        return logits


def torchtitan_model(config: LanguageConfig, device: torch.device) -> TorchtitanModel:
    """Return torchtitan's model with the sizes, compilation and float8 of these settings, and random weights.

    On a CPU it has ScaledDotProductAttention, because the backward passes of torchtitan's FlexAttention and
    VarlenAttention need a GPU. torchtitan's own trainer does not run on CPUs.
    """
    from torchtitan.components.quantization import Float8LinearConverter
    from torchtitan.models.common import ComplexRoPE, Embedding, Linear, RMSNorm
    from torchtitan.models.common.attention import FlexAttention, ScaledDotProductAttention
    from torchtitan.models.common.config_utils import make_ffn_config, make_gqa_config
    from torchtitan.models.llama3.model import Llama3Model, Llama3TransformerBlock

    sizes, has_mask = config.sizes, device.type == "cuda"
    norm = RMSNorm.Config(normalized_shape=sizes.width, eps=1e-5, param_init=NORM_INIT)
    attention = make_gqa_config(
        dim=sizes.width,
        n_heads=sizes.heads,
        n_kv_heads=sizes.kv_heads,
        wqkv_param_init=MATRIX_INIT,
        wo_param_init=MATRIX_INIT,
        inner_attention=FlexAttention.Config() if has_mask else ScaledDotProductAttention.Config(),
        fuse_qkv=True,
        rope=ComplexRoPE.Config(dim=sizes.head_width, max_seq_len=config.context, theta=config.rope_base),
    )
    feed_forward = make_ffn_config(
        dim=sizes.width, hidden_dim=sizes.hidden, w1_param_init=MATRIX_INIT, w2w3_param_init=MATRIX_INIT
    )
    block = Llama3TransformerBlock.Config(
        attention_norm=norm, ffn_norm=norm, attention=attention, feed_forward=feed_forward
    )
    model_config: Any = Llama3Model.Config(
        dim=sizes.width,
        vocab_size=config.vocabulary,
        enable_weight_tying=sizes.is_tied,
        tok_embeddings=Embedding.Config(
            num_embeddings=config.vocabulary, embedding_dim=sizes.width, param_init=MATRIX_INIT
        ),
        norm=norm,
        lm_head=Linear.Config(in_features=sizes.width, out_features=config.vocabulary, param_init=MATRIX_INIT),
        layers=[block] * sizes.layers,
    )
    if config.float8 != "none":
        converter: Any = Float8LinearConverter.Config(
            recipe_name=config.float8,  # `rowwise`: torchtitan has no recipe `tensorwise`
            filter_fqns=["lm_head"],
            model_compile_enabled=config.compile,
            # A CPU can only emulate float8. torchtitan does not allow the emulation with a compiled model.
            emulate=device.type == "cpu",
        )
        model_config = converter.build().convert(model_config)
    with device:
        decoder = model_config.build()
    decoder.init_states()
    for layer in decoder.layers.values() if config.compile else ():
        layer.compile(fullgraph=True)
    return TorchtitanModel(decoder, has_mask=has_mask)


def main() -> None:
    """Run an epoch for each line of input."""
    if sys.argv[1] == "references":
        device = torch.device("cpu")
        found = loops(CONFIG, device)
    else:
        device = torch.device("cuda")
        half = torch.bfloat16 if torch.cuda.get_device_capability() >= (8, 0) else torch.float16
        found = gpu_loops(first_gpu(), device, half)
    for line in sys.stdin:
        wait_for_device(device)
        started = time.perf_counter()
        found[line.strip()]()
        wait_for_device(device)
        print(RESULT, time.perf_counter() - started, flush=True)


if __name__ == "__main__":
    main()
