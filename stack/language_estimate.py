"""Estimates for jobs that train a language model: memory of a device, tokens a second, and price of tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.cost import CostEstimate
from infra.hardware.gpus import GPUS
from stack.config import StackConfig
from stack.placement import pools_of_jobs
from stack.run_record import pools_for, usd_per_hour
from workloads.language_model import (
    GIB,
    LANGUAGE,
    Model,
    device_memory,
    estimated_memory,
    language_training,
    num_devices,
)
from workloads.spec import JobSpec
from workloads.validation.flags import memory_parts

BILLION = 1e9
"""Number of tokens that a price covers."""
REFERENCE = "Llama 3.1 8B in torchtitan (FSDP2, bfloat16): 128 H100s without torch.compile, 8 H100s with it"
"""Trainer whose published speeds are the basis of the estimates."""
REFERENCE_SOURCE = (
    "https://github.com/pytorch/torchtitan/blob/31a17bfdb70bab6f62a13d21816a5339b911d6e3/benchmarks/"
    "llama3_h100_202412_torchtitan.md"
)
REFERENCE_RATES = (5605, 6667)
"""Tokens a second on each GPU: the slowest and the fastest published speed in 16 bits."""


def reference_utilizations() -> list[float]:
    """Return the model FLOPs utilization (MFU) at both speeds of REFERENCE_RATES, with `Model.flops_per_token`."""
    model = Model(layers=32, width=4096, heads=32, kv_heads=8, hidden=14336, vocabulary=128_256, is_tied=False)
    peak = (GPUS["nvidia-h100-80gb"].teraflops or 0) * 1e12
    return [rate * model.flops_per_token(8192) / peak for rate in REFERENCE_RATES]


@dataclass(frozen=True, kw_only=True)
class LanguageEstimate:
    """Estimate for one job."""

    job: str
    weights: int
    """Number of the model's weights, without the norms."""
    device: str
    """Device that holds the weights: a GPU, a TPU device, or a share of the host's memory."""
    num_devices: int
    memory_gib: float
    """Estimated memory of each device."""
    memory_parts: str
    """Breakdown of the estimated memory by use."""
    memory_limit_gib: float
    """Memory that each device offers."""
    tokens_per_second: tuple[float, float] | None
    """Range for each GPU; None for training in 32 bits, without GPUs, or on GPUs whose peak is unknown."""
    usd_per_billion_tokens: tuple[float, float] | None
    """Range for 10^9 tokens; None without a price or a rate."""

    def lines(self) -> list[str]:
        """Return the estimate as lines of Markdown."""
        found = [
            f"- {self.job}: {self.weights / 1e6:,.1f} million parameters. Memory of each of {self.num_devices} devices "
            f"(estimate): {self.memory_gib:,.1f} of {self.memory_limit_gib:,.0f} GiB ({self.memory_parts})"
        ]
        if self.tokens_per_second:
            low, high = self.tokens_per_second
            shares = " to ".join(f"{share:.0%}" for share in reference_utilizations())
            price = "no price is known"
            if self.usd_per_billion_tokens:
                price = "${:,.0f} to ${:,.0f} for 10^9 tokens".format(*self.usd_per_billion_tokens)
            found.append(
                f"- {self.job}: {price}, at {low:,.0f} to {high:,.0f} tokens a second on each GPU. This is an "
                f"estimate, not a measurement: {shares} of the GPU's peak, as in [{REFERENCE}]({REFERENCE_SOURCE})"
            )
        return found


def language_estimates(config: StackConfig) -> list[LanguageEstimate]:
    """Return an estimate for each job of recipe `language` on one of Trainyard's images."""
    jobs = [job for job in config.jobs if job.recipe == LANGUAGE and not job.has_user_image]
    if not jobs:
        return []
    pools, estimate = config.cloud.pool_nodes(), config.cloud.cost_estimate()
    assigned = pools_of_jobs(config.cloud, config.jobs)
    return [_estimate(job, pools_for(pools, job, assigned.get(job.name)), estimate) for job in jobs]


def _estimate(spec: JobSpec, pools: Mapping[str, tuple[int, int]], estimate: CostEstimate) -> LanguageEstimate:
    training = language_training(spec)
    memory, (limit, device) = estimated_memory(training), device_memory(spec)
    devices = num_devices(spec)
    gpu, rates, prices = GPUS.get(spec.accelerator or ""), None, None
    # The speeds of the reference are for 16 bits.
    if gpu and gpu.teraflops and training.number_bytes == 2:
        flops = training.flops_per_token
        slow, fast = (share * gpu.teraflops * 1e12 / flops for share in reference_utilizations())
        rates = slow, fast
        hourly = usd_per_hour(estimate, pools, spec)
        if hourly is not None:
            prices = hourly / 3600 * BILLION / (fast * devices), hourly / 3600 * BILLION / (slow * devices)
    return LanguageEstimate(
        job=spec.name,
        weights=training.model.weights,
        device=device,
        num_devices=devices,
        memory_gib=memory.total / GIB,
        memory_parts=memory_parts(memory),
        memory_limit_gib=limit / GIB,
        tokens_per_second=rates,
        usd_per_billion_tokens=prices,
    )
