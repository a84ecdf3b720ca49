"""Disk space that the steps of set-up need at their peak, minus the files that earlier runs have written."""

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
    """Disk space that one or several steps need in a folder."""

    folder: Callable[[], Path]
    """Function that returns the folder."""
    peak_bytes: int
    """Maximum bytes in the folder during the steps."""


PYTHON_PACKAGES = DiskNeed(folder=packages_folder, peak_bytes=7_000_000_000)
"""Python packages of the trainer image: 6.3 GB in a first set-up (2026-11-27)."""
IMAGES = DiskNeed(folder=lambda: cache_folder() / "images", peak_bytes=25_000_000_000)
"""Build of the trainer image: 23.8 GB in a first set-up, measured every 15 s (2026-11-27).

For a moment, buildah needs four times the largest layer of 6.0 GB: container, stored layer, and two archives.
"""
GO_BUILDS = DiskNeed(folder=lambda: cache_folder() / "go-build", peak_bytes=8_000_000_000)
"""Modules and objects of Go, which all builds share until set-up ends: 7.1 GB before the last build (2026-11-27)."""


def remaining_bytes(steps: Iterable[Step]) -> int:
    """Return the free disk space that the unfinished steps need."""
    return needed_bytes(step for step in steps if step.disk and not step.is_done())


def needed_bytes(missing: Iterable[Step]) -> int:
    """Return the free disk space that these steps need. A folder that several steps share counts once."""
    return sum(map(remaining_need, {need for step in missing for need in step.disk}))


def remaining_need(need: DiskNeed) -> int:
    """Return the bytes of a disk need that are not yet in its folder."""
    return max(0, need.peak_bytes - _used_bytes(need.folder()))


def _used_bytes(folder: Path) -> int:
    """Return the disk usage of a folder, or 0 if it does not exist. Other programs may change it meanwhile."""
    done = subprocess.run(["du", "-s", "--block-size=1", str(folder)], capture_output=True, text=True, check=False)
    return int(done.stdout.split()[0]) if done.stdout else 0
