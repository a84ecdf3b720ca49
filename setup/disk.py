"""Disk space that the steps of set-up need at their peak, less what earlier runs have written."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from infra.local.settings import cache_folder
from infra.local.trainer_image import packages_folder

if TYPE_CHECKING:
    from setup.progress import Step


@dataclass(frozen=True, kw_only=True)
class DiskNeed:
    """Disk space of a folder that one or several steps write."""

    folder: Callable[[], Path]
    """Function that returns the folder."""
    peak_bytes: int
    """Most bytes in the folder during the steps."""


PYTHON_PACKAGES = DiskNeed(folder=packages_folder, peak_bytes=6_000_000_000)
"""Python packages of the trainer image: 5.9 GB after a first set-up (2026-11-27)."""
IMAGES = DiskNeed(folder=lambda: cache_folder() / "images", peak_bytes=25_000_000_000)
"""Build of the trainer image, whose largest layer has 6.0 GB.

buildah needs four times the layer for a moment: container, stored layer, and two archives. The import
into the image store needs no more: stored layer, its compressed archive twice, and the unpacked layer. Measured on
2026-11-27 with a layer of 0.4 GB on a base image of 0.2 GB: 1.77 GB in both.
"""
GO_BUILDS = DiskNeed(folder=lambda: cache_folder() / "go-build", peak_bytes=4_000_000_000)
"""Modules and objects of Go, which all builds share until set-up ends: 4.0 GB in an interrupted set-up (2026-11-27)."""


def needed_bytes(missing: Iterable[Step]) -> int:
    """Return the free disk space that missing steps need. A folder that several steps share counts once."""
    needs = {need for step in missing for need in step.disk}
    return sum(max(0, need.peak_bytes - _used_bytes(need.folder())) for need in needs)


def _used_bytes(folder: Path) -> int:
    """Return the disk usage of a folder: 0 without the folder. Other programs may change it meanwhile."""
    done = subprocess.run(["du", "-s", "--block-size=1", str(folder)], capture_output=True, text=True, check=False)
    return int(done.stdout.split()[0]) if done.stdout else 0
