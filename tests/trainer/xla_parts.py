"""Run one of two hosts with sharded weights on XLA: save the parts of its devices, load them and check all values.

Each of the two processes is a host. XLA's CPU device spans one process, so each process has all eight devices, but uses
only the parts of its own four. Run as `python -m tests.trainer.xla_parts BUCKET` with RANK and WORLD_SIZE.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch_xla.distributed.spmd import XLAShardedTensor

from trainer.checkpoints.checkpoint import Checkpoints, SavedState
from trainer.config import LanguageConfig
from trainer.distributed import local_part, own_part
from trainer.language.sizes import Parallelism
from trainer.runtime import start_runtime
from trainer.storage import Folder

WIDTH = 64
SHAPES = {"model.down": (WIDTH, 96), "model.up": (96, WIDTH), "model.norm": (WIDTH,), "model.adapter": (4, 96)}


def main(bucket: str) -> None:
    """Save and load tensors with known values, and print the shape of each part."""
    runtime: Any = start_runtime(LanguageConfig(width=WIDTH))
    # As on a slice of 4x4 chips, the numbers of a host's devices are not consecutive.
    hosts = [[0, 1, 4, 5], [2, 3, 6, 7]]
    runtime.devices = lambda: [device for devices in hosts for device in devices]
    runtime.set_parallelism(Parallelism(shard=8))
    whole_shards, load_shards = XLAShardedTensor.local_shards.fget, XLAShardedTensor.load_local_shards_
    others: dict[int, list[Any]] = {}

    def own_shards(tensor: XLAShardedTensor) -> list[Any]:
        own: list[Any] = []
        others[id(tensor)] = []
        for shard in whole_shards(tensor):
            (own if int(shard.shard_device[-1]) in hosts[runtime.rank] else others[id(tensor)]).append(shard)
        return own

    def load_with_others(tensor: XLAShardedTensor, shards: list[Any]) -> None:
        every = [*shards, *others[id(tensor)]]
        load_shards(tensor, sorted(every, key=lambda shard: shard.shard_device))

    XLAShardedTensor.local_shards = property(own_shards)
    XLAShardedTensor.load_local_shards_ = load_with_others
    wanted, tensors = {}, {}
    for number, (name, shape) in enumerate(SHAPES.items()):
        wanted[name] = torch.arange(torch.Size(shape).numel()).view(shape) + 10_000.0 * number
        tensors[name] = wanted[name].to(runtime.device)
        runtime.shard(tensors[name])
    checkpoints = Checkpoints(Folder(bucket), runtime, keep=1)
    checkpoints.save(1, SavedState(tensors=runtime.to_host(tensors), facts={"step": 1}))
    checkpoints.wait()
    saved = checkpoints.load_newest(
        check_compatible=lambda _: None,
        skipped=lambda name, reason: sys.exit(f"{name}: {reason}"),
        sharded_like=lambda name: runtime.host_like(tensors[name]),
    )
    assert saved
    for name, tensor in saved.tensors.items():
        assert torch.equal(local_part(tensor), wanted[name][own_part(tensor)]), name
        empty = torch.zeros_like(tensors[name])
        runtime.restore(empty, tensor)
        found = empty.cpu()[own_part(tensor)]
        assert torch.equal(found, wanted[name][own_part(tensor)]), name
        print(f"part {runtime.rank} {name} {tuple(local_part(tensor).shape)}", flush=True)
    runtime.close()


main(sys.argv[1])
