"""Run record: what a job ran from and on, so that its checkpoints can be explained later. Pure; no Pulumi."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from infra.aws.config import EksConfig
from infra.aws.pools import node_groups
from infra.config import PlatformConfig
from infra.cost import bill
from infra.gcp.config import GkeConfig
from infra.gcp.pools import num_nodes, pool_plans
from stack_config import StackConfig
from workloads.spec import JobSpec

PROJECT = Path(__file__).resolve().parent


@cache
def commit() -> str:
    """The commit of this checkout, `-changed` behind where files differ from it; `unknown` outside of git.

    Settings do not count, since the plan's digest has them; and the engine writes its salt among them.
    """
    head = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!Pulumi.*.yaml")
    return f"{head}-changed" if head and changed else head or "unknown"


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=PROJECT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def plan_digest(config: StackConfig, spec: JobSpec) -> str:
    """SHA-256 of the platform's and the job's settings: two runs of one plan have the same."""
    plan = {"platform": config.platform.model_dump(mode="json"), "job": spec.model_dump(mode="json")}
    return f"sha256:{hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()}"


def pools_for(platform: PlatformConfig, spec: JobSpec) -> dict[str, tuple[int, int]]:
    """The pools that a job's hosts may run on: nodes, and GPUs of each; none where the platform has no pools."""
    if isinstance(platform, GkeConfig):
        plans = {pool.name: (pool_plans(platform, pool)[0], num_nodes(pool)) for pool in platform.pools}
        return {
            name: (nodes, plan.gpus)
            for name, (plan, nodes) in plans.items()
            if (plan.tpu == spec.tpu if spec.tpu else not plan.tpu and plan.gpu == spec.accelerator)
        }
    if isinstance(platform, EksConfig):
        plans_of_groups = [plan for plan in node_groups(platform) if plan.machine.gpu == spec.accelerator]
        return {plan.name: (plan.nodes, plan.machine.gpus) for plan in plans_of_groups}
    return {}


def usd_per_hour(platform: PlatformConfig, spec: JobSpec) -> float | None:
    """What the job's hosts cost an hour by the first of its pools; None where that is not priced as a whole.

    Hosts that share a node's GPUs share its price; one without GPUs, or with TPUs, has a node to itself.
    """
    found = bill(platform)
    for pool, (nodes, gpus) in pools_for(platform, spec).items():
        if pool in found.incomplete():
            return None
        share = spec.accelerators / gpus if gpus else 1
        return round(found.by_part()[pool].amount / nodes * spec.hosts * share, 4)
    return None


def run_records(config: StackConfig, image: Any, own_images: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """The record of each job with its image: the platform's, one that was built with it, or that of the settings."""
    images = {spec.name: own_images.get(spec.image_name or "", spec.image or image) for spec in config.jobs}
    return {spec.name: {**run_record(config, spec), "image": images[spec.name]} for spec in config.jobs}


def run_record(config: StackConfig, spec: JobSpec) -> dict[str, Any]:
    """The record of a job as it is submitted; the image with its digest, and what it took, come later."""
    folder = spec.flags.get("job", spec.name)
    return {
        "job": spec.name,
        "commit": commit(),
        "plan": plan_digest(config, spec),
        "pools": sorted(pools_for(config.platform, spec)),
        "bucket_prefix": folder,
        "checkpoints": f"checkpoints/{folder}",
        "profiles": f"profiles/{folder}",
        "wandb_run": spec.name if "WANDB_API_KEY" in spec.secrets else None,
        "accelerator": spec.accelerator,
        "chips": spec.accelerators * spec.hosts,
        "usd_per_hour": usd_per_hour(config.platform, spec),
    }
