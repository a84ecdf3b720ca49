"""Evaluation results in Weights & Biases: images and the confusion matrix, in one group for all ranks."""

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

BLOCK, HEAD, WHOLE, LAST = 32768, 7, 1, 4
"""Sizes of a block and of a header, and types of a whole record and of its last part, in W&B's log format:
https://github.com/google/leveldb/blob/main/doc/log_format.md
"""


Record: Any = vars(wandb_internal_pb2)["Record"]
"""Message type that protobuf creates at import, so that type checkers do not know it."""


def test_confusion_has_classes_as_rows_and_predictions_as_columns(runtime: Runtime) -> None:
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
    data, offset = path.read_bytes(), HEAD
    found, partial = [], b""
    while offset < len(data):
        if BLOCK - offset % BLOCK < HEAD:
            offset += BLOCK - offset % BLOCK
            continue
        _, length, part = struct.unpack_from("<IHB", data, offset)
        partial += data[offset + HEAD : offset + HEAD + length]
        offset += HEAD + length
        if part in (WHOLE, LAST):
            found.append(Record.FromString(partial))
            partial = b""
    return found


def test_every_rank_has_a_wandb_run_in_the_group_of_the_job(tmp_path: Path) -> None:
    tiny_imagenet(tmp_path / "data", classes=4, train=16, tests=6, side=32)
    flags = ("--no-fake-data", "--arch=resnet18", "--image-size=32", "--batch-size=8", "--epochs=1", "--log-steps=1")
    where = (f"--data-dir={tmp_path}/data", f"--bucket=file://{tmp_path}/bucket", "--job=pictures", "--wandb=offline")
    run(*flags, *where, f"--cache-dir={tmp_path}/cache", recipe="imagenet", processes=2, data=tmp_path)
    runs = sorted((tmp_path / "bucket" / "pictures" / "wandb").rglob("offline-run-*/*.wandb"))
    records = [wandb_records(path) for path in runs]
    heads = [each.run for found in records for each in found if each.HasField("run")]
    assert {each.display_name for each in heads} == {"pictures-0", "pictures-1"}
    assert {each.run_group for each in heads} == {"pictures"}
    for path in runs:
        assert len(list(path.parent.rglob("media/images/**/*.png"))) == min(GALLERY_SAMPLES, 4 * 6 // 2)
    (table,) = [each for path in runs for each in path.parent.rglob("media/table/**/*.json")]
    rows = json.loads(table.read_text(encoding="utf-8"))["data"]
    assert len(rows) == 4 * 4
    assert sum(count for _, _, count in rows) == 4 * 6
