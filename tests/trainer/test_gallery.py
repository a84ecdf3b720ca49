"""Galleries of evaluations in Weights & Biases: images of every rank, and the confusion matrix of all ranks."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from wandb.proto import wandb_internal_pb2

from images.trainer.made_images import tiny_imagenet
from tests.trainer.processes import run
from trainer.runtime import Runtime
from trainer.tasks import GALLERY_SAMPLES, Collector

BLOCK_BYTES, HEADER_BYTES = 32768, 7
"""Sizes of W&B's log format, a variant of https://github.com/google/leveldb/blob/main/doc/log_format.md."""
WHOLE_RECORD, LAST_PART = 1, 4
"""Types of a part that ends a record."""

Record: Any = vars(wandb_internal_pb2)["Record"]
"""Message type that protobuf creates at import. Type checkers do not know it."""


def test_gallery_has_samples_and_counts_of_predictions_per_class(runtime: Runtime) -> None:
    collector = Collector(3, torch.device("cpu"))
    logits = torch.eye(3)[[0, 2, 2, 1]]
    collector.add(torch.rand(4, 3, 5, 6), logits, torch.tensor([0, 1, 2, 1]))
    found = collector.take(runtime)
    assert found.confusion is not None
    assert found.confusion.tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 1]]
    assert [(each.label, each.predicted) for each in found.samples] == [(0, 0), (1, 2), (2, 2), (1, 1)]
    assert found.samples[0].pixels.shape == (5, 6, 3)
    assert found.samples[0].pixels.dtype == np.uint8
    assert (found.samples[0].pixels.min(), found.samples[0].pixels.max()) == (0, 255)


def wandb_records(path: Path) -> list[Any]:
    """Return the records of a W&B log file."""
    # The file itself also begins with a header of this size.
    data, offset = path.read_bytes(), HEADER_BYTES
    found, partial = [], b""
    while offset < len(data):
        if BLOCK_BYTES - offset % BLOCK_BYTES < HEADER_BYTES:
            offset += BLOCK_BYTES - offset % BLOCK_BYTES
            continue
        _, length, part_type = struct.unpack_from("<IHB", data, offset)
        partial += data[offset + HEADER_BYTES : offset + HEADER_BYTES + length]
        offset += HEADER_BYTES + length
        if part_type in (WHOLE_RECORD, LAST_PART):
            found.append(Record.FromString(partial))
            partial = b""
    return found


def test_every_rank_has_a_wandb_run_in_the_group_of_the_job(tmp_path: Path) -> None:
    tiny_imagenet(tmp_path / "data", classes=4, train=16, tests=6, side=32)
    flags = ("--no-fake-data", "--arch=resnet18", "--image-size=32", "--batch-size=8", "--epochs=1", "--log-steps=1")
    where = (f"--data-dir={tmp_path}/data", f"--bucket=file://{tmp_path}/bucket", "--job=pictures", "--wandb=offline")
    run(*flags, *where, f"--cache-dir={tmp_path}/cache", recipe="imagenet", processes=2, data=tmp_path)
    files = sorted((tmp_path / "bucket" / "pictures" / "wandb").rglob("offline-run-*/*.wandb"))
    records = [wandb_records(path) for path in files]
    runs_of_ranks = [each.run for found in records for each in found if each.HasField("run")]
    assert {each.display_name for each in runs_of_ranks} == {"pictures-0", "pictures-1"}
    assert {each.run_group for each in runs_of_ranks} == {"pictures"}
    for path in files:
        assert len(list(path.parent.rglob("media/images/**/*.png"))) == min(GALLERY_SAMPLES, 4 * 6 // 2)
    (table,) = [each for path in files for each in path.parent.rglob("media/table/**/*.json")]
    rows = json.loads(table.read_text(encoding="utf-8"))["data"]
    assert len(rows) == 4 * 4
    assert sum(count for _, _, count in rows) == 4 * 6
