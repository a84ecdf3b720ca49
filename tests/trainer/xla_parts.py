"""Run one of two hosts with sharded weights on XLA: save the parts of its devices, load them and check all values.

`python -m tests.trainer.xla_parts BUCKET` is one host, and needs RANK and WORLD_SIZE. On CPUs, XLA cannot share
devices among processes, so each host has all eight devices. A host uses only the parts of its own four devices.
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
DEVICES_OF_HOSTS = [[0, 1, 4, 5], [2, 3, 6, 7]]
"""Numbers of each host's devices. As on a slice of 4x4 chips, a host's numbers are not consecutive."""


def use_devices_of(host: int) -> None:
    """Make each sharded tensor show and load only the shards of one host's devices."""
    all_shards, load_shards = XLAShardedTensor.local_shards.fget, XLAShardedTensor.load_local_shards_
    other_shards: dict[int, list[Any]] = {}

    def own_shards(tensor: XLAShardedTensor) -> list[Any]:
        own: list[Any] = []
        others: list[Any] = []
        for shard in all_shards(tensor):
            (own if int(shard.shard_device[-1]) in DEVICES_OF_HOSTS[host] else others).append(shard)
        other_shards[id(tensor)] = others
        return own

    def load_with_others(tensor: XLAShardedTensor, shards: list[Any]) -> None:
        every = [*shards, *other_shards[id(tensor)]]
        load_shards(tensor, sorted(every, key=lambda shard: shard.shard_device))

    XLAShardedTensor.local_shards = property(own_shards)
    XLAShardedTensor.load_local_shards_ = load_with_others


def main(bucket: str) -> None:
    """Save and load tensors with known values, and print the shape of each part."""
    runtime: Any = start_runtime(LanguageConfig(width=WIDTH))
    runtime.devices = lambda: [device for devices in DEVICES_OF_HOSTS for device in devices]
    runtime.set_parallelism(Parallelism(shard=8))
    use_devices_of(runtime.rank)
    expected, tensors = {}, {}
    for number, (name, shape) in enumerate(SHAPES.items()):
        expected[name] = torch.arange(torch.Size(shape).numel()).view(shape) + 10_000.0 * number
        tensors[name] = expected[name].to(runtime.device)
        runtime.shard(tensors[name])
    checkpoints = Checkpoints(Folder(bucket), runtime, keep=1)
    checkpoints.save(1, SavedState(tensors=runtime.to_host(tensors), facts={"step": 1}))
    checkpoints.wait()
    loaded = checkpoints.load_newest(
        check_compatible=lambda _: None,
        skipped=lambda name, reason: sys.exit(f"{name}: {reason}"),
        sharded_like=lambda name: runtime.host_like(tensors[name]),
    )
    assert loaded
    for name, tensor in loaded.tensors.items():
        assert torch.equal(local_part(tensor), expected[name][own_part(tensor)]), name
        restored = torch.zeros_like(tensors[name])
        runtime.restore(restored, tensor)
        assert torch.equal(restored.cpu()[own_part(tensor)], expected[name][own_part(tensor)]), name
        print(f"part {runtime.rank} {name} {tuple(local_part(tensor).shape)}", flush=True)
    runtime.close()


main(sys.argv[1])
