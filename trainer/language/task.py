"""The task of the recipe `language`: predict the next token of texts."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from trainer.config import LanguageConfig
from trainer.data.datasets import NO_LABEL
from trainer.data.texts import Texts
from trainer.distributed import local_part
from trainer.language.decoder import Decoder, adapt, initialize, is_adapter, use_float8
from trainer.language.hugging_face import PublishedModel, describe
from trainer.language.sizes import check_tensor_size, divide_ranks
from trainer.models import build_optimizer
from trainer.reporter import Reporter
from trainer.runtime import Runtime
from trainer.step_log import Meter
from trainer.tasks import Evaluation, Task, run_test_set

BETAS = (0.9, 0.95)
"""Decays of AdamW's averages, as for Llama 2: https://arxiv.org/abs/2307.09288, section 2.1."""
LENGTH_MULTIPLE = 64
"""Unit to which text generation rounds up the length of its input, so that torch compiles for few lengths."""


def optimizer_groups(config: LanguageConfig, model: nn.Module) -> list[dict[str, Any]]:
    """Return the trained weights in two groups: matrices with weight decay, and norms without."""
    matrices, norms = (
        [weight for weight in model.parameters() if (weight.dim() > 1) == is_2d and weight.requires_grad]
        for is_2d in (True, False)
    )
    return [{"params": matrices, "weight_decay": config.weight_decay}, {"params": norms, "weight_decay": 0.0}]


def losses(scores: torch.Tensor, labels: torch.Tensor, *, z_loss: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sum that training minimises, and the sum of the labels' cross entropies.

    The two differ by the z-loss of https://arxiv.org/abs/2204.02311, section 5.
    """
    scores, labels = scores.flatten(0, 1).float(), labels.flatten()
    loss = functional.cross_entropy(scores, labels, reduction="sum", ignore_index=NO_LABEL)
    if not z_loss:
        return loss, loss
    squares = scores.logsumexp(dim=-1).square()
    return loss + z_loss * squares.masked_fill(labels == NO_LABEL, 0).sum(), loss


@torch.no_grad()
def clip_gradients(weights: Iterable[torch.Tensor], max_norm: float) -> torch.Tensor:
    """Scale the gradients of all ranks down to `max_norm`, unless `max_norm` is 0. Return their norm before that.

    torch's clip_grad_norm_ would need one all-reduce for each sharded gradient.
    """
    gradients: list[Any] = [weight.grad for weight in weights if weight.grad is not None]
    norms: dict[tuple[bool, ...], list[torch.Tensor]] = defaultdict(list)
    for gradient in gradients:
        axes = tuple(not placement.is_replicate() for placement in getattr(gradient, "placements", ()))
        norms[axes].append(local_part(gradient))
    total = torch.zeros((), device=gradients[0].device)
    for axes, parts in norms.items():
        square = torch.stack(torch._foreach_norm(parts)).square().sum()
        for axis, is_sharded in enumerate(axes):
            if is_sharded:
                dist.all_reduce(square, group=gradients[0].device_mesh.get_group(axis))
        total += square
    norm = total.sqrt()
    if max_norm:
        torch._foreach_mul_([local_part(gradient) for gradient in gradients], (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


class TokenMeter(Meter):
    """Sums of the tokens' losses and of the gradients' norms, on the device. Only reading them waits for the device."""

    def __init__(self, device: torch.device, *, bytes_per_token: float) -> None:
        super().__init__(device, numbers=4)
        self._bytes_per_token = bytes_per_token

    def add(self, loss_sum: torch.Tensor, logits: torch.Tensor, labels: torch.Tensor) -> None:
        """Add a batch: the sum of its losses, and the number of its labels."""
        del logits
        found = torch.stack([loss_sum.detach().double(), (labels != NO_LABEL).sum().double()])
        self._sums = self._sums + functional.pad(found, (0, 2))

    def add_norm(self, norm: torch.Tensor) -> None:
        found = torch.stack([norm.nan_to_num(0, 0, 0).double(), norm.isfinite().double()])  # GradScaler skips inf
        self._sums = self._sums + functional.pad(found, (2, 0))

    def take(self, sums: torch.Tensor) -> tuple[dict[str, float], int]:
        """Return the means since the last call by name, and the number of tokens."""
        loss, tokens, norms, steps = self.since(sums)
        mean = loss / max(tokens, 1)
        bits = bits_per_byte(mean, self._bytes_per_token)
        return {"loss": mean, "bits_per_byte": bits, "gradient_norm": norms / steps if steps else math.nan}, int(tokens)


def bits_per_byte(loss: float, bytes_per_token: float) -> float:
    """Return the bits that the model needs for a byte of text, from the mean loss of a token."""
    return loss / math.log(2) / bytes_per_token


class LanguageTask(Task):
    """Training of a decoder on texts."""

    main_measure = "bits_per_byte"
    best = staticmethod(min)

    def __init__(self, config: LanguageConfig, runtime: Runtime) -> None:
        self._config, self._runtime = config, runtime
        self._parallelism = divide_ranks(config.parallelism, runtime.num_devices)
        tensor = self._parallelism.tensor
        check_tensor_size(config.sizes, tensor, context=config.context, vocabulary=config.vocabulary)
        runtime.set_parallelism(self._parallelism)
        self.units_per_sample, self.evaluate_steps = config.context, config.evaluate_steps
        self._texts = Texts(config, runtime)
        self.data = runtime.feed(self._texts)

    def build(self) -> tuple[nn.Module, torch.optim.Optimizer]:
        config, runtime = self._config, self._runtime
        with torch.device("meta"):
            model = Decoder(
                config.sizes,
                vocabulary=config.vocabulary,
                rope_base=config.rope_base,
                rope_factor=config.rope_factor,
                separator=self._texts.tokenizer.separator,
                checkpointing=config.activation_checkpointing,
            )
            if config.lora_rank:
                adapt(model, rank=config.lora_rank, scale=config.lora_scale)
            if config.float8 != "none":
                use_float8(model, config.float8, runtime.device, tensor=self._parallelism.tensor)
        if self._parallelism.is_sharded and runtime.device.type != "xla":
            # Imported here because it takes a second to load, and ranks with whole copies do not need it.
            from trainer.language.sharding import shard_model

            shard_model(model, self._parallelism, runtime.device.type, dtype=runtime.precision)
        # On XLA the host sends each weight to the devices that have a part of it.
        model.to_empty(device=runtime.data_device)
        model.tie()
        initialize(model, seed=config.seed)
        if config.init_from:
            published = PublishedModel(config.init_from)
            published.check(config)
            published.load(model, runtime.heartbeat)
        if runtime.data_device != runtime.device:
            model.to(runtime.device).tie()
        return model, build_optimizer(config, optimizer_groups(config, model), betas=BETAS)

    def describe(self) -> dict[str, Any]:
        """Return the model in Hugging Face's form, its tokenizer, and the location of the weights that LoRA freezes."""
        config, base = self._config, self._config.init_from if self._config.lora_rank else ""
        described = describe(config, separator=self._texts.tokenizer.separator)
        facts = {"config": described, "tokenizer": config.tokenizer}
        return facts | {"lora_base": base, "lora_scale": config.lora_scale}

    def meter(self) -> Meter:
        return TokenMeter(self._runtime.device, bytes_per_token=self._texts.bytes_per_token)

    def flops_per_unit(self, model: nn.Module) -> float:
        sizes, vocabulary = self._config.sizes, self._config.vocabulary
        adapters = sum(weight.numel() for name, weight in model.named_parameters() if is_adapter(name))
        return sizes.flops_per_token(context=self._config.context, vocabulary=vocabulary, adapters=adapters)

    def loss(self, output: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return losses(output, labels, z_loss=self._config.z_loss)

    def before_update(self, model: nn.Module, meter: Meter) -> None:
        """Clip the gradient and measure its norm."""
        cast("TokenMeter", meter).add_norm(clip_gradients(model.parameters(), self._config.clip_norm))

    def evaluate(self, model: nn.Module, stop_requested: Callable[[], bool]) -> Evaluation | None:
        runtime = self._runtime
        sums = torch.zeros(2, dtype=torch.float64, device=runtime.device)

        def add(_inputs: torch.Tensor, scores: torch.Tensor, labels: torch.Tensor) -> None:
            sums[0] += losses(scores, labels, z_loss=0)[1]
            sums[1] += (labels != NO_LABEL).sum()
            runtime.flush()

        if not run_test_set(model, self.data, runtime, stop_requested, add):
            return None
        # The ranks of a tensor group have the same samples.
        loss, tokens = (runtime.sum(sums) / runtime.tensor_size).tolist()
        assert int(tokens) == self._texts.test_targets, f"{tokens} tokens were counted, not {self._texts.test_targets}"
        mean = loss / tokens
        return Evaluation({"loss": mean, "bits_per_byte": bits_per_byte(mean, self._texts.test_bytes / tokens)})

    def after_evaluation(
        self, model: nn.Module, report: Reporter, step: int, stop_requested: Callable[[], bool]
    ) -> None:
        """Report a text that the model writes."""
        runtime = self._runtime
        if self._config.sample_tokens and (runtime.is_lockstep or runtime.rank == 0):
            model.eval()
            with runtime.evaluating():
                text = self._write(model, stop_requested)
            if runtime.rank == 0:
                report.event("sample", step=step, text=json.dumps(text, ensure_ascii=False))

    def _write(self, model: nn.Module, stop_requested: Callable[[], bool]) -> str:
        """Return the prompt and the model's continuation, the same on all ranks. Stops early if a rank is preempted."""
        config, runtime = self._config, self._runtime
        generator = torch.Generator().manual_seed(config.seed)
        tokenizer = self._texts.tokenizer
        tokens = [tokenizer.separator, *map(int, next(tokenizer.encode([config.prompt.encode()])))]
        # XLA compiles a graph for each length, so use only one.
        unit = config.context if runtime.device.type == "xla" else LENGTH_MULTIPLE * runtime.tensor_size
        for _ in range(config.sample_tokens):
            if runtime.stop_requested(is_local=stop_requested()):
                break
            seen = tokens[-config.context :]
            length = min(config.context, -(-len(seen) // unit) * unit)
            padded = torch.tensor([seen + seen[-1:] * (length - len(seen))], device=runtime.device)
            with runtime.autocast():
                # Use a tensor: on XLA a number would be part of the graph.
                last = torch.tensor([len(seen) - 1], device=runtime.device)
                scores = model(padded)[0].index_select(0, last)[0, : tokenizer.size].float().cpu()
            scores[tokenizer.separator] = -math.inf
            if config.temperature:
                probabilities = (scores / config.temperature).softmax(dim=-1)
                tokens.append(int(torch.multinomial(probabilities, 1, generator=generator)))
            else:
                tokens.append(int(scores.argmax()))
        return tokenizer.decode(tokens[1:])
