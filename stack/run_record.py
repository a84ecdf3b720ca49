"""Run record of a job: the sources, settings and resources behind its checkpoints."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from infra.capacity import SYSTEM, PoolNodes
from infra.cost import CostEstimate
from infra.project import CHECKOUT, project_folder
from stack.config import StackConfig
from stack.placement import pools_of_jobs
from workloads import user_files
from workloads.spec import JobSpec

SOURCES = ("--", ".", ":!Pulumi.*.yaml")
"""Arguments for git: all files of the checkout except stack settings."""


@dataclass(frozen=True)
class SourceState:
    """State of a checkout at the submission of a job."""

    commit: str
    """Commit of the checkout, or `unknown` outside of git."""
    dirty: bool | str
    """True if files differ from the commit, or `unknown` outside of git."""
    diff_digest: str | None
    """SHA-256 of all differences from the commit, or None if there are none."""


@cache
def source_state(folder: Path = CHECKOUT) -> SourceState:
    """Return the state of a checkout. Count new files that git does not ignore. Leave out the stacks' settings."""
    head = _git(folder, "rev-parse", "HEAD").decode().strip()
    if not head:
        return SourceState(commit="unknown", dirty="unknown", diff_digest=None)
    difference = _git(folder, "diff", "--binary", "--no-ext-diff", "--no-textconv", "HEAD", *SOURCES)
    new_files = _git(folder, "ls-files", "--others", "--exclude-standard", "-z", *SOURCES).split(b"\0")[:-1]
    if not difference and not new_files:
        return SourceState(commit=head, dirty=False, diff_digest=None)
    digest = hashlib.sha256(difference)
    for name in sorted(new_files):
        digest.update(b"\0" + name + b"\0" + _digest_of(folder / os.fsdecode(name)))
    return SourceState(commit=head, dirty=True, diff_digest=f"sha256:{digest.hexdigest()}")


def _digest_of(file: Path) -> bytes:
    """Return the digest of a file's content. An unreadable file, such as a broken link, counts as empty."""
    try:
        with file.open("rb") as content:
            return hashlib.file_digest(content, "sha256").digest()
    except OSError:
        return b""


def _git(folder: Path, *arguments: str) -> bytes:
    """Return the output of git. It is empty if git is not installed or the folder is not a checkout."""
    if shutil.which("git") is None:
        return b""
    result = subprocess.run(["git", *arguments], cwd=folder, capture_output=True, check=False)
    return result.stdout if result.returncode == 0 else b""


def plan_digest(config: StackConfig, spec: JobSpec) -> str:
    """Return the SHA-256 of the platform's and the job's settings. Runs with equal settings have equal digests."""
    plan = {"platform": config.platform.model_dump(mode="json"), "job": spec.model_dump(mode="json")}
    return f"sha256:{hashlib.sha256(json.dumps(plan, sort_keys=True).encode()).hexdigest()}"


def _digests_of_user_files(config: StackConfig, spec: JobSpec) -> dict[str, str]:
    """Return the digests of the user's files in the job. For a project outside the checkout, add Trainyard's commit."""
    found = {}
    if spec.script and user_files.is_in_project(spec.script):
        script = user_files.read_script(spec.script, project_folder(), config.left_out)
        found["script_digest"] = f"sha256:{script.digest}"
    if spec.requirements:
        text = user_files.read_requirements(spec.requirements, project_folder())
        found["requirements_digest"] = f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
    if project_folder() != CHECKOUT:
        found["trainyard_commit"] = source_state(CHECKOUT).commit
    return found


def pools_for(pool_nodes: Iterable[PoolNodes], spec: JobSpec, assigned: str | None) -> dict[str, tuple[int, int]]:
    """Return pool -> (nodes, GPUs of each node) for the assigned pool, else for all with the job's accelerator."""
    return {
        pool.name: (pool.nodes, pool.gpus)
        for pool in pool_nodes
        if pool.name != SYSTEM
        and assigned in (None, pool.name)
        and (pool.tpu == spec.tpu if spec.tpu else not pool.tpu and pool.gpu == spec.accelerator)
    }


def usd_per_hour(estimate: CostEstimate, pools: Mapping[str, tuple[int, int]], spec: JobSpec) -> float | None:
    """Return the hourly cost of the job's hosts in the first of the pools; None without a pool or a price.

    Hosts that share a node's GPUs share its price. A host without GPUs, or with TPUs, has the price of a node.
    """
    for pool, (nodes, gpus) in pools.items():
        if pool in estimate.incomplete():
            return None
        share = spec.accelerators / gpus if gpus else 1
        return round(estimate.by_part()[pool].amount / nodes * spec.hosts * share, 4)
    return None


def run_records(config: StackConfig) -> dict[str, dict[str, Any]]:
    """Return job -> run record, except its key `image`."""
    estimate, assigned = config.cloud.cost_estimate(), pools_of_jobs(config.cloud, config.jobs)
    pool_nodes = config.cloud.pool_nodes()
    return {
        spec.name: run_record(config, spec, pools_for(pool_nodes, spec, assigned.get(spec.name)), estimate)
        for spec in config.jobs
    }


def checkpoints_folder(spec: JobSpec) -> str:
    """Return the path of a job's checkpoints in the bucket."""
    return f"checkpoints/{spec.bucket_folder}"


def run_record(
    config: StackConfig, spec: JobSpec, pools: Mapping[str, tuple[int, int]], estimate: CostEstimate
) -> dict[str, Any]:
    """Return the run record of a job, except its key `image`. `pools` are the pools where the job's hosts may run."""
    folder = spec.bucket_folder
    return {
        "job": spec.name,
        **asdict(source_state(project_folder())),
        **_digests_of_user_files(config, spec),
        "plan": plan_digest(config, spec),
        "pools": sorted(pools),
        "bucket_prefix": folder,
        "checkpoints": checkpoints_folder(spec),
        "profiles": f"profiles/{folder}",
        "wandb_run": spec.name if "WANDB_API_KEY" in spec.secrets else None,
        "accelerator": spec.accelerator,
        "chips": spec.accelerators * spec.hosts,
        "usd_per_hour": usd_per_hour(estimate, pools, spec),
    }
