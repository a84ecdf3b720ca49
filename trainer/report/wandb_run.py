"""Weights & Biases: events as curves, test images and the confusion matrix."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from trainer.report.sinks import CLOSE_SECONDS, Record
from trainer.storage import Folder


class WeightsAndBiases:
    """A rank's run in Weights & Biases, in a group with the job's name that all ranks share.

    Without a network or a key it writes a folder for a later `wandb sync`.
    """

    def __init__(self, folder: Folder, *, job: str, rank: int, mode: str) -> None:
        self._folder, self._job, self._rank = folder, job, rank
        self._mode = mode if mode != "auto" else ("online" if os.environ.get("WANDB_API_KEY") else "offline")
        self._run: Any = None
        self._path = ""

    def write(self, record: Record) -> None:
        """Add an event."""
        points: dict[str, Any] = dict(record.curves())
        if points:
            run = self._open()
            run.log({**points, **_images(record)}, step=record.global_step)

    def flush(self) -> None:
        """Do nothing: W&B's own processes write continuously."""

    def close(self) -> None:
        """Write all remaining events."""
        if self._run is not None:
            self._run.finish()
            if not self._folder.is_local:
                for path in sorted(Path(self._path).rglob("*")):
                    if path.is_file() and not path.is_symlink():
                        self._folder.upload(str(path), str(path.relative_to(self._path)))
                shutil.rmtree(self._path)

    def _open(self) -> Any:
        if self._run is None:
            # Imported in this thread: the import takes seconds, which training must not wait for.
            import wandb

            self._path = self._folder.path if self._folder.is_local else tempfile.mkdtemp(prefix="wandb-")
            Path(self._path).mkdir(parents=True, exist_ok=True)
            settings = wandb.Settings(init_timeout=CLOSE_SECONDS / 2, silent=True, console="off")
            options: dict[str, Any] = {
                "project": "trainyard",
                "group": self._job,
                "name": f"{self._job}-{self._rank}",
                "dir": self._path,
                "settings": settings,
            }
            try:
                self._run = wandb.init(mode="online" if self._mode == "online" else "offline", **options)
            except (wandb.errors.CommError, wandb.errors.UsageError) as error:
                # A missing or wrong key raises one of these errors.
                print(f"warning: W&B rejected the run of this rank, kept in {self._path}: {error}", file=sys.stderr)
                self._run = wandb.init(mode="offline", **options)
        return self._run


def _images(record: Record) -> dict[str, Any]:
    """Return the images of an event in W&B's types: samples and the confusion matrix."""
    if record.gallery is None:
        return {}
    import wandb

    found: dict[str, Any] = {
        f"{record.name}/samples": [
            wandb.Image(each.pixels, caption=f"{each.label} taken for {each.predicted}")
            for each in record.gallery.samples
        ]
    }
    if (counts := record.gallery.confusion) is not None:
        rows = [[str(row), str(column), int(count)] for (row, column), count in np.ndenumerate(counts)]
        columns: list[str | int] = ["Actual", "Predicted", "nPredictions"]
        found[f"{record.name}/confusion"] = wandb.plot_table(
            "wandb/confusion_matrix/v1",
            wandb.Table(columns=columns, data=rows),
            {str(name): str(name) for name in columns},
        )
    return found
