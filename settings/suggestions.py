"""Suggestions for unknown keys. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

OUR_KEYS = {
    "backoff_limit": "restarts",
    "max_restarts": "restarts",
    "command": "script",
    "entrypoint": "script",
    "count": "nodes",
    "num_nodes": "nodes",
    "env": "environment",
    "gpu_type": "accelerator",
    "pool": "accelerator",
    "node_pool": "accelerator",
    "gpus": "accelerators_per_host",
    "gpus_per_node": "accelerators_per_host",
    "instance_type": "machine_type",
    "nnodes": "hosts",
    "nodes": "hosts",
    "replicas": "hosts",
    "workers": "hosts",
    "node_pools": "pools",
    "nproc_per_node": "processes_per_host",
    "preemptible": "capacity",
    "spot": "capacity",
    "shm_size": "shared_memory",
    "batch_size": "flags.batch_size",
    "cpu": "resources.cpu",
    "cpus": "resources.cpu",
    "deadline": "deadline_seconds",
    "epochs": "flags.epochs",
    "learning_rate": "flags.learning_rate",
    "lr": "flags.learning_rate",
    "max": "max_hosts",
    "mem": "resources.memory",
    "memory": "resources.memory",
    "min": "min_hosts",
    "processes": "processes_per_host",
    "shm": "shared_memory",
    "timeout": "deadline_seconds",
    "wandb": "flags.wandb",
}
"""Trainyard's keys by their names in Kubernetes, torchrun, the clouds and other launchers.

`section.key` is a key inside a section. `TIME_TO_LIVE` has the keys for `ttl`: the stack's TTL
or a job's deadline. Jobs have no TTL, because `pulumi up` would recreate a deleted job.
"""
TIME_TO_LIVE = ("ttl_hours", "deadline_seconds")


def unknown_key(key: str, allowed: Sequence[str]) -> str:
    """Return the error message for an unknown key, with the nearest key of `allowed`."""
    return f"unknown key; {_remedy(key, allowed)}; allowed here: {', '.join(allowed)}"


def _remedy(key: str, allowed: Sequence[str]) -> str:
    plain = key.lower().replace("-", "_")
    names = TIME_TO_LIVE if plain == "ttl" else (OUR_KEYS.get(plain, plain),)
    for name in names:
        part, dot, inner = name.partition(".")
        if part in allowed:
            return f"write {name}, which is `{part}: {{{inner}: ...}}`" if dot else f"write {name}"
        if inner in allowed:
            return f"write {inner}"
    near = get_close_matches(key, allowed, n=1, cutoff=0.7)
    return f"write {near[0]}" if near else "remove it"
